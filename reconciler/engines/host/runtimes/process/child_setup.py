"""What a process of a container is given between fork and exec: no way to new rights, and a limit of processes.

It runs in the child of a daemon with several threads, so it calls nothing but the kernel.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from functools import cache
from pathlib import Path

_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 36, 38
_UNBOUNDED = 1 << 62
_libc = ctypes.CDLL(None, use_errno=True)


def set_up_wrapper() -> Callable[[], None]:
    """For the wrapper of a container: what is orphaned below it becomes its own child, whatever it did to hide."""
    soft, hard = nproc_limits()

    def call() -> None:
        _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

    return call


def set_up_exec() -> Callable[[], None]:
    """For what runs beside the program of a container, such as a probe."""
    soft, hard = nproc_limits()

    def call() -> None:
        _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

    return call


@cache
def nproc_limits() -> tuple[int, int]:
    """Processes of one user, soft and hard: half of what this host lets the daemon's user have.

    The kernel counts a user's processes together. So this is no limit of one container, but containers that fork
    without end stop before the daemon is without any itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    known = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
    known += [_number(Path("/proc/sys/kernel", name)) for name in ("threads-max", "pid_max")]
    half = max(1, min(known, default=_UNBOUNDED) // 2)
    return half, half


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _UNBOUNDED
