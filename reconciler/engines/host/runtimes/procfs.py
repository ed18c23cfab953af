"""Reads /proc for the processes of this host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 1 << 16
_NO_ENVIRONMENT = 0x4 | 0x200000
"""Flags of kernel threads and of exiting processes: neither has an environment."""
_DEAD = (b"Z", b"X", b"x")
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors for a process that has ended or belongs to another user; other errors have other causes."""


class Proc(msgspec.Struct, frozen=True, gc=False):
    """One process; ``start`` in clock ticks since the boot distinguishes it from a later one of the same number.

    ``cpu_seconds`` includes its reaped children; ``memory`` is its resident bytes. In the middle of an exec, a
    process that ``has_environment`` shows none. A ``runnable`` one runs, or waits for a processor or a disk.
    """

    pid: int
    parent: int
    session: int
    start: int
    alive: bool
    has_environment: bool
    cpu_seconds: float
    memory: int
    runnable: bool


def read_kernel_file(path: str) -> bytes:
    """Read a small kernel file completely. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _BLOCK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def find_process(pid: int) -> Proc | None:
    """The process of that number, dead or alive; None if there is none.

    A zombie is dead once its last thread is: until then its files and ports are open.
    """
    try:
        stat = read_kernel_file(f"/proc/{pid}/stat")
    except _GONE:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Proc(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        alive=fields[0] not in _DEAD or int(fields[17]) > 1,
        has_environment=not int(fields[6]) & _NO_ENVIRONMENT,
        cpu_seconds=sum(map(int, fields[11:15])) * _TICK,
        memory=int(fields[21]) * _PAGE,
        runnable=fields[0] in (b"R", b"D"),
    )


def list_pids() -> set[int]:
    """The numbers of all visible processes except this one."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}


def list_processes() -> dict[int, Proc]:
    """All visible living processes except this one."""
    processes = (find_process(pid) for pid in list_pids())
    return {proc.pid: proc for proc in processes if proc is not None and proc.alive}


def read_environment(pid: int) -> bytes | None:
    """The environment at its start, from the kernel; None if it cannot be read."""
    try:
        return read_kernel_file(f"/proc/{pid}/environ")
    except _GONE:
        return None


def command_line(pid: int) -> list[bytes]:
    """The arguments of a process; [] if it has ended."""
    try:
        return read_kernel_file(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    except _GONE:
        return []


def user_of(pid: int) -> int | None:
    """The effective user of a process; None if it has ended.

    The owner of its directory does not tell: that is root for any process that asks not to be inspected.
    """
    try:
        status = read_kernel_file(f"/proc/{pid}/status")
    except _GONE:
        return None
    return int(status.partition(b"\nUid:")[2].split()[1])


def is_in_exec(process_info: Proc, environment: bytes | None) -> bool:
    """Whether it is in the middle of an exec: at that moment it has neither environment nor arguments."""
    return (
        environment == b""
        and process_info.alive
        and process_info.has_environment
        and not command_line(process_info.pid)
    )


def list_children(pid: int) -> list[int]:
    """The current children of ``pid``."""
    try:
        return [int(child) for child in read_kernel_file(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return [proc.pid for proc in list_processes().values() if proc.parent == pid]


def collect_descendants(procs: dict[int, Proc], roots: set[int]) -> set[int]:
    """``roots`` and all their descendants."""
    kids: dict[int, list[int]] = {}
    for proc in procs.values():
        kids.setdefault(proc.parent, []).append(proc.pid)
    descendants: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in descendants:
            descendants.add(pid)
            todo += kids.get(pid, ())
    return descendants


def signal_exactly(proc: Proc, number: int) -> None:
    """Send a signal to this process and to no later one of its number; does nothing if it has ended or is another's."""
    try:
        descriptor = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return
    except OSError:
        descriptor = -1
    try:
        now = find_process(proc.pid)
        if now is None or now.start != proc.start:
            return
        if descriptor < 0:
            os.kill(proc.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def boot_id() -> str:
    """The boot id of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def compute_process_age(proc: Proc) -> float:
    """Seconds since the process started."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - proc.start * _TICK)
