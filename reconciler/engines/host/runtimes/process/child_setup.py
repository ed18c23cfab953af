"""Restrictions of container processes: they gain no privileges, and their number is limited."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

from reconciler.engines.host.runtimes.process.executable import User
from reconciler.engines.host.runtimes.process.launcher import SET_NO_NEW_PRIVS

_LAUNCHER = Path(__file__).with_name("launcher.py")
_UNBOUNDED = 1 << 62
_libc = ctypes.CDLL(None, use_errno=True)


def deny_new_privileges() -> None:
    """Prevent processes that this thread starts from now on from gaining privileges, for example by setuid programs.

    The daemon itself starts none that must. A child inherits the setting from its thread, so no Python code runs
    between fork and exec, where it could wait forever for a lock of another thread.
    """
    _libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def start_wrapper(
    shell: str, title: str, env: dict[str, str], directory: str, user: User, outputs: tuple[int, int]
) -> subprocess.Popen[bytes]:
    """Start a shell called ``title`` in a new session, which waits for its stdin. Raises OSError.

    It is a subreaper: all orphans below it become its own children. Blocks until the shell runs.
    """
    report, reporting = os.pipe2(os.O_CLOEXEC)
    with open(report, "rb") as reports, open(os.memfd_create("environment"), "w+b") as environment:
        try:
            environment.write(b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items()))
            environment.seek(0)
            words = [reporting, environment.fileno(), nproc_limit(), *_format_identity_arguments(user), shell, title]
            wrapper = subprocess.Popen(
                [sys.executable, "-I", "-S", _LAUNCHER, *map(str, words)],
                env={},
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=outputs[0],
                stderr=outputs[1],
                start_new_session=True,
                umask=0o022,
                bufsize=0,
                pass_fds=(reporting, environment.fileno()),
            )
        finally:
            os.close(reporting)
        if failure := reports.read():
            wrapper.communicate()
            raise OSError(int(failure), os.strerror(int(failure)))
    return wrapper


def _format_identity_arguments(user: User) -> list[str]:
    """User, group and further groups as arguments of the launcher."""
    own = user.number is None
    return ["" if own else str(user.number), "" if own else str(user.group), ",".join(map(str, user.groups))]


@cache
def nproc_limit() -> int:
    """The limit of processes of one user: half of what this host allows the daemon's user.

    The kernel counts all processes of a user together, so this limits no single container. But containers that fork
    without end stop before the daemon itself runs out of processes.
    """
    limits = [number for number in resource.getrlimit(resource.RLIMIT_NPROC) if number != resource.RLIM_INFINITY]
    limits += [_read_number(Path("/proc/sys/kernel", name)) for name in ("threads-max", "pid_max")]
    return max(1, min(limits, default=_UNBOUNDED) // 2)


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _UNBOUNDED
