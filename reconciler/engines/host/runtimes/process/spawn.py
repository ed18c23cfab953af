"""Starts the wrapper of a container, which waits until its start is recorded before it runs the program."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.process.cgroup_tree import CgroupTree
from reconciler.engines.host.runtimes.process.child_setup import start_wrapper
from reconciler.engines.host.runtimes.process.executable import directory_of, program_of, user_of
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.engines.host.runtimes.replicas_service import move_to_service
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_LONGEST_ARGUMENT = 1 << 17
"""The size in bytes of one argument from which on Linux refuses to start a program."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY = frozenset({errno.EAGAIN, errno.ENOMEM})


@cache
def build_wrapper_script() -> str:
    """The shell script of the wrapper."""
    return files(__package__).joinpath("wrapper.sh").read_text(encoding="utf-8")


def format_wrapper_title(container_id: ContainerId) -> str:
    """The title of a container's wrapper in the process list."""
    return f"reconciler: {container_id.key.gvc}/{container_id.key.name}/{container_id.replica}/{container_id.container}"


def is_wrapper(pid: int, container_id: ContainerId) -> bool:
    """Whether the process is the wrapper of that container, by its title, which no other process has."""
    return procfs.command_line(pid) == [format_wrapper_title(container_id).encode()]


def group_name(container_id: ContainerId) -> str:
    """The name of the control groups of a container."""
    digest = blake2b(
        f"{container_id.key}/{container_id.replica}/{container_id.container}".encode(), digest_size=5
    ).hexdigest()
    return f"{container_id.replica[:80]}.{container_id.container[:80]}.{digest}"


def spawn_container(
    launch: ContainerStart, at: float, folders: StateDirectory, labels: ProcessLabels, limits: CgroupTree | None
) -> StartRecord:
    """Start a container; ``at`` is the monotonic time. Blocks for some milliseconds. Raises EngineError.

    The program begins only after its start is recorded, so a daemon that dies before leaves nothing behind.
    """
    user = user_of(launch)
    directory = directory_of(launch, user)
    argv = [program_of(launch, user, directory), *launch.args]
    environment = _build_environment(launch, labels)
    with _start_errors(launch.place):
        _check_size(argv, environment)
        outputs = folders.prepare(launch.place)
    try:
        groups = _create_cgroups(launch, limits)
        try:
            with _start_errors(launch.place):
                wrapper = start_wrapper(
                    _find_shell(launch), format_wrapper_title(launch.place), environment, directory, user, outputs
                )
                begun = _start_record(launch, wrapper.pid, at, groups)
                _run_program(wrapper, begun, folders, _script_for(argv))
        except EngineError:
            cgroups.remove_groups(groups, limits.bases if limits else ())
            raise
    finally:
        for output in outputs:
            os.close(output)
    return begun


def _run_program(wrapper: subprocess.Popen[bytes], begun: StartRecord, folders: StateDirectory, text: bytes) -> None:
    try:
        folders.write(begun)
        # First, since systemd may move it in all hierarchies, also in those where it has limits of its own.
        move_to_service(wrapper.pid)
        cgroups.join_groups(begun.groups, wrapper.pid)
        _send_script(wrapper, text)
    except OSError:
        wrapper.communicate()
        raise
    # Its end is watched by its number, because an earlier daemon may have started it.
    wrapper.returncode = 0


def _send_script(wrapper: subprocess.Popen[bytes], text: bytes) -> None:
    assert wrapper.stdin is not None
    with wrapper.stdin:
        rest = memoryview(text)
        while rest:
            rest = rest[wrapper.stdin.write(rest) :]


def _script_for(argv: list[str]) -> bytes:
    # Because of the braces, a shell runs nothing before it has read the whole script.
    return os.fsencode(f"{{\nset -- {' '.join(map(shlex.quote, argv))}\n{build_wrapper_script()}}}\n")


def _check_size(argv: list[str], env: dict[str, str]) -> None:
    """Raise the error that starting a program of this size would raise; the wrapper itself needs less."""
    texts = [os.fsencode(text) for text in (*argv, *env, *env.values())]
    if any(b"\0" in text for text in texts):
        raise ValueError("embedded null byte")
    whole = sum(map(len, texts)) + 16 * len(texts)
    if max(map(len, texts)) >= _LONGEST_ARGUMENT or whole > os.sysconf("SC_ARG_MAX"):
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))


def _build_environment(launch: ContainerStart, labels: ProcessLabels) -> dict[str, str]:
    marker = labels.variables(launch)
    return {**marker, **launch.env, **marker}


def _find_shell(launch: ContainerStart) -> str:
    # dash drops variables whose names are invalid in a shell, such as `a.b`; bash passes them on.
    odd = sorted(name for name in launch.env if not (name.isascii() and name.isidentifier()))
    if not odd:
        return "/bin/sh"
    if bash := shutil.which("bash"):
        return bash
    raise EngineError(f"the variable {odd[0]} requires bash, which is not installed", reason=Reason.PROGRAM_NOT_FOUND)


def _create_cgroups(launch: ContainerStart, limits: CgroupTree | None) -> tuple[str, ...]:
    if limits is None:
        return ()
    name = group_name(launch.place)
    try:
        cgroups.remove_groups([str(base / name) for base in limits.bases], limits.bases)
        return limits.make(name, cgroups.GroupLimits(launch.cpu, launch.memory, launch.processes))
    except OSError as error:
        raise EngineError(
            f"the limits of {launch.place.container} cannot be set: {error.strerror}", reason=Reason.LIMITS_FAILED
        ) from error


def _start_record(launch: ContainerStart, pid: int, at: float, groups: tuple[str, ...]) -> StartRecord:
    seen = procfs.find_process(pid)
    return StartRecord(
        place=launch.place,
        version=launch.version,
        config_hash=launch.config_hash,
        index=launch.index,
        pid=pid,
        start=seen.start if seen else 0,
        boot=procfs.boot_id(),
        started=at,
        groups=groups,
        ports=launch.ports,
    )


@contextmanager
def _start_errors(container_id: ContainerId) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise EngineError(
            f"{container_id.container} cannot be started: {error}", reason=Reason.START_FAILED, retry=False
        ) from error
    except OSError as error:
        why = error.strerror or "unknown error"
        if error.errno in _FULL:
            raise EngineError(f"no room to start {container_id.container}: {why}", reason=Reason.DISK_FULL) from error
        if error.errno in _TOO_MANY:
            raise EngineError(
                f"no process for {container_id.container}: {why}", reason=Reason.PROCESS_LIMIT_REACHED
            ) from error
        raise EngineError(f"{container_id.container} cannot be started: {why}", reason=Reason.START_FAILED) from error
