"""Starts the wrapper of a container, which waits until all is written down, and tells it to go."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from reconciler.engines.host.runtimes.process import cgroups, procfs
from reconciler.engines.host.runtimes.process.cgroup_tree import CgroupTree
from reconciler.engines.host.runtimes.process.executable import User, directory_of, program_of, user_of
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.errors import EngineError

NAME = "reconciler-container"
"""What wrappers are called in the list of processes."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY = frozenset({errno.EAGAIN, errno.ENOMEM})


@cache
def script() -> str:
    """The wrapper's text, for a shell."""
    return files(__package__).joinpath("wrapper.sh").read_text(encoding="utf-8")


def is_wrapper(pid: int) -> bool:
    """Whether the process is a wrapper, by what it runs."""
    return procfs.command_line(pid)[1:4] == [b"-c", script().encode(), NAME.encode()]


def group_name(place: ContainerId) -> str:
    """The name of the control groups of a container."""
    digest = blake2b(f"{place.key}/{place.replica}/{place.container}".encode(), digest_size=5).hexdigest()
    return f"{place.replica[:80]}.{place.container[:80]}.{digest}"


def spawn(
    launch: ContainerStart, at: float, folders: StateDirectory, marking: ProcessLabels, limits: CgroupTree | None
) -> StartRecord:
    """Start a container ``at`` this time of the monotonic clock; blocks for some milliseconds. Raises EngineError.

    The program begins only after its start is recorded: a daemon that dies before leaves nothing behind.
    """
    user = user_of(launch)
    directory = directory_of(launch, user)
    argv = [_shell(launch), "-c", script(), NAME, program_of(launch, user, directory), *launch.args]
    with _explained(launch.place):
        outputs = folders.prepare(launch.place)
    try:
        groups = _groups(launch, limits)
        try:
            with _explained(launch.place):
                wrapper = _wrapper(argv, _environment(launch, marking), directory, user, outputs)
                begun = _begun(launch, wrapper.pid, at, groups)
                _go(wrapper, begun, folders)
        except EngineError:
            cgroups.remove(groups, limits.bases if limits else ())
            raise
    finally:
        for each in outputs:
            os.close(each)
    return begun


def _go(wrapper: subprocess.Popen[bytes], begun: StartRecord, folders: StateDirectory) -> None:
    try:
        folders.write(begun)
        cgroups.join(begun.groups, wrapper.pid)
        _let_go(wrapper)
    except OSError:
        wrapper.communicate()
        raise
    # Its end is watched by its number: it may as well have begun in another life of the daemon.
    wrapper.returncode = 0


def _let_go(wrapper: subprocess.Popen[bytes]) -> None:
    assert wrapper.stdin is not None
    wrapper.stdin.write(b"go\n")
    wrapper.stdin.close()


def _environment(launch: ContainerStart, marking: ProcessLabels) -> dict[str, str]:
    marker = marking.variables(launch)
    return {**marker, **launch.env, **marker}


def _shell(launch: ContainerStart) -> str:
    # dash drops variables whose names are none in a shell, such as `a.b`; bash hands them on.
    odd = sorted(name for name in launch.env if not (name.isascii() and name.isidentifier()))
    if not odd:
        return "/bin/sh"
    if bash := shutil.which("bash"):
        return bash
    raise EngineError(f"the variable {odd[0]} can be given only where bash is installed", reason="ProgramNotFound")


def _groups(launch: ContainerStart, limits: CgroupTree | None) -> tuple[str, ...]:
    if limits is None:
        return ()
    name = group_name(launch.place)
    try:
        cgroups.remove([str(base / name) for base in limits.bases], limits.bases)
        return limits.make(name, launch.cpu, launch.memory)
    except OSError as error:
        raise EngineError(
            f"the limits of {launch.place.container} cannot be set: {error.strerror}", reason="LimitsNotSet"
        ) from error


def _wrapper(
    argv: list[str], env: dict[str, str], directory: str, user: User, outputs: tuple[int, int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=env,
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=outputs[0],
        stderr=outputs[1],
        start_new_session=True,
        umask=0o022,
        bufsize=0,
        user=user.number,
        group=user.group if user.number is not None else None,
        extra_groups=user.groups if os.geteuid() == 0 else None,
    )


def _begun(launch: ContainerStart, pid: int, at: float, groups: tuple[str, ...]) -> StartRecord:
    seen = procfs.look(pid)
    return StartRecord(
        place=launch.place,
        version=launch.version,
        stamp=launch.stamp,
        index=launch.index,
        pid=pid,
        start=seen.start if seen else 0,
        boot=procfs.boot_id(),
        started=at,
        groups=groups,
    )


@contextmanager
def _explained(place: ContainerId) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise EngineError(f"{place.container} cannot be started: {error}", reason="NotStarted", retry=False) from error
    except OSError as error:
        why = error.strerror or "unknown error"
        if error.errno in _FULL:
            raise EngineError(f"no room to start {place.container}: {why}", reason="DiskFull") from error
        if error.errno in _TOO_MANY:
            raise EngineError(f"no process for {place.container}: {why}", reason="NoMoreProcesses") from error
        raise EngineError(f"{place.container} cannot be started: {why}", reason="NotStarted") from error
