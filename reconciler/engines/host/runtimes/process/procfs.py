"""What /proc says about the processes of this host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 1 << 16
_NEITHER = 0x4 | 0x200000
"""Flags of the kernel's own threads, and of who is about to end: neither has an environment."""
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""What the kernel answers about a process that is over or another user's; anything else says nothing about it."""


class Proc(msgspec.Struct, frozen=True, gc=False):
    """One process; ``start`` in clock ticks since the boot tells it from a later one of the same number.

    ``cpu_seconds`` is what it and its children that were waited for have used, ``memory`` its resident bytes.
    ``speaks``: it has an environment, unless it is just becoming another program.
    """

    pid: int
    parent: int
    session: int
    start: int
    alive: bool
    speaks: bool
    cpu_seconds: float
    memory: int


def read(path: str) -> bytes:
    """The whole of a small file of the kernel. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _BLOCK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def look(pid: int) -> Proc | None:
    """The process of that number, dead or alive; None where there is none. A zombie is dead."""
    try:
        stat = read(f"/proc/{pid}/stat")
    except _GONE:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Proc(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        alive=fields[0] not in (b"Z", b"X", b"x"),
        speaks=not int(fields[6]) & _NEITHER,
        cpu_seconds=sum(map(int, fields[11:15])) * _TICK,
        memory=int(fields[21]) * _PAGE,
    )


def numbers() -> set[int]:
    """The numbers of all processes that can be seen, without this one."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}


def everyone() -> dict[int, Proc]:
    """All processes that can be seen, without the dead and without this one."""
    found = (look(pid) for pid in numbers())
    return {proc.pid: proc for proc in found if proc is not None and proc.alive}


def environment(pid: int) -> bytes | None:
    """What it was started with, as the kernel gives it; None where nobody may know."""
    try:
        return read(f"/proc/{pid}/environ")
    except _GONE:
        return None


def command_line(pid: int) -> list[bytes]:
    """Its arguments; [] where it is gone."""
    try:
        return read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    except _GONE:
        return []


def between(each: Proc, environment: bytes | None) -> bool:
    """Whether it is just becoming another program: for that moment it has neither environment nor arguments."""
    return environment == b"" and each.alive and each.speaks and not command_line(each.pid)


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started and that are still its own."""
    try:
        return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return [proc.pid for proc in everyone().values() if proc.parent == pid]


def below(procs: dict[int, Proc], roots: set[int]) -> set[int]:
    """``roots`` and all that descends from them."""
    kids: dict[int, list[int]] = {}
    for proc in procs.values():
        kids.setdefault(proc.parent, []).append(proc.pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += kids.get(pid, ())
    return found


def signal_exactly(proc: Proc, number: int) -> None:
    """Send a signal to this process and to no later one of its number; nothing where it is gone or another's."""
    try:
        descriptor = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return
    except OSError:
        descriptor = -1
    try:
        now = look(proc.pid)
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
    """Which start of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def age(proc: Proc) -> float:
    """Seconds since it began."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - proc.start * _TICK)
