"""Control groups of containers: their limits, members, usage and removal."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes import procfs

NEEDED = ("cpu", "memory")
USEFUL = ("cpuacct", "freezer", "pids")
"""The controllers that limits require, and others that containers use where they are there."""
_USED = frozenset({"memory.current", "memory.usage_in_bytes"})
PERIOD, LEAST_QUOTA = 100_000, 1_000
"""Microseconds in which a container may use its quota of CPU, and the least quota that the kernel accepts."""
_PATIENCE = 1.0


class MountedHierarchy(msgspec.Struct, frozen=True):
    """A mounted hierarchy: its top directory, the group of a process in it, and its controllers."""

    top: Path
    own: Path
    controllers: frozenset[str]
    unified: bool


class GroupLimits(msgspec.Struct, frozen=True):
    """Millicores, bytes of memory, and the number of processes and threads."""

    cpu: int
    memory: int
    processes: int


def list_mounts(pid: int | None = None, proc: Path = Path("/proc")) -> list[MountedHierarchy]:
    """The mounted hierarchies of this host, with the groups of ``pid``, or else of the daemon."""
    try:
        own = _own_groups(proc / str(pid or "self") / "cgroup")
        lines = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    # Each container adds mounts of other kinds.
    listed = [line for line in lines if " - cgroup" in line]
    return [mounted for line in listed if (mounted := _parse_mount(line, own)) is not None]


def list_hierarchies(proc: Path = Path("/proc")) -> list[Path]:
    """The top directories of all mounted hierarchies, those without useful controllers included."""
    try:
        lines = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    fields = [line.partition(" - ") for line in lines]
    return [Path(left.split()[4]) for left, _, right in fields if right.split()[0] in ("cgroup", "cgroup2")]


def set_limits(group: Path, limits: GroupLimits) -> None:
    """Set the limits of a group. Raises OSError."""
    name, quota, memory = str(group), max(LEAST_QUOTA, limits.cpu * PERIOD // 1000), limits.memory
    if (group / "pids.max").exists():
        write_value(name, "pids.max", str(limits.processes))
    if (group / "cpu.max").exists():
        write_value(name, "cpu.max", f"{quota} {PERIOD}")
    if (group / "memory.max").exists():
        write_value(name, "memory.max", str(memory))
        _try_write(name, "memory.swap.max", "0")
    if (group / "cpu.cfs_quota_us").exists():
        write_value(name, "cpu.cfs_period_us", str(PERIOD))
        write_value(name, "cpu.cfs_quota_us", str(quota))
    if (group / "memory.limit_in_bytes").exists():
        write_value(name, "memory.limit_in_bytes", str(memory))
        _try_write(name, "memory.memsw.limit_in_bytes", str(memory))


def join_groups(groups: Sequence[str], pid: int) -> None:
    """Move a process into the groups. Raises OSError."""
    for group in groups:
        write_value(group, "cgroup.procs", str(pid))


def list_members(groups: Sequence[str]) -> set[int]:
    """The processes in the groups, as far as they are visible from here."""
    pids = {int(pid) for group in groups for pid in read_file(group, "cgroup.procs").split()}
    return pids - {0, os.getpid()}


def kill_members(groups: Sequence[str]) -> None:
    """Send SIGKILL to all processes in the groups, as far as possible including those that are just being created."""
    frozen = [group for group in groups if _try_write(group, "freezer.state", "FROZEN")]
    if any(_try_write(group, "cgroup.kill", "1") for group in groups):
        return
    for pid in list_members(groups):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, 9)
    thaw_groups(frozen)


def thaw_groups(groups: Sequence[str]) -> None:
    """Thaw groups that a daemon left frozen because it died while it killed."""
    for group in groups:
        _try_write(group, "freezer.state", "THAWED")


def read_usage(groups: Sequence[str]) -> tuple[float, int] | None:
    """CPU seconds since the start, and bytes of memory without reclaimable file cache; None if unknown."""
    seconds = memory = None
    for group in groups:
        try:
            files = _list_files(os.path.dirname(group))
        except OSError:
            return None
        if "cpuacct.usage" in files:
            seconds = int(read_file(group, "cpuacct.usage") or 0) / 1e9
        elif "cpu.max" in files:
            seconds = _parse_numbers(read_file(group, "cpu.stat")).get("usage_usec", 0) / 1e6
        if used := files & _USED:
            stat = _parse_numbers(read_file(group, "memory.stat"))
            idle = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            memory = max(0, int(read_file(group, *used) or 0) - idle)
    return None if seconds is None or memory is None else (seconds, memory)


def has_quota(groups: Sequence[str]) -> bool:
    """Whether the CPU of the groups is limited, as far as they are visible from here."""
    values = (read_file(group, file).split() for group in groups for file in ("cpu.max", "cpu.cfs_quota_us"))
    return any(value and value[0] not in ("max", "-1") for value in values)


def set_quota(groups: Sequence[str], cpu: int) -> bool:
    """Limit the CPU of a container to ``cpu`` millicores; returns whether one of its groups could be changed."""
    quota = max(LEAST_QUOTA, cpu * PERIOD // 1000)
    return any(
        _try_write(group, "cpu.max", f"{quota} {PERIOD}")
        or (_try_write(group, "cpu.cfs_period_us", str(PERIOD)) and _try_write(group, "cpu.cfs_quota_us", str(quota)))
        for group in groups
    )


def out_of_memory(groups: Sequence[str]) -> bool:
    """Whether the kernel has killed a process in the groups because their memory was exhausted."""
    texts = (read_file(group, file) for group in groups for file in ("memory.events", "memory.oom_control"))
    return any(_parse_numbers(text).get("oom_kill", 0) > 0 for text in texts)


def remove_groups(groups: Sequence[str], bases: Collection[Path] = ()) -> None:
    """Remove the groups of an ended container. The kernel may need a moment before that works.

    Their parent group is removed too, unless it is in ``bases``: a new daemon may start in another group.
    """
    for group in map(Path, groups):
        deadline = time.monotonic() + _PATIENCE
        while not try_remove(group) and time.monotonic() < deadline:
            time.sleep(0.005)
        if group.parent not in bases:
            try_remove(group.parent)


def try_remove(group: Path) -> bool:
    """Remove a group; return whether it is gone, which it cannot be while it has members."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def write_value(group: str, file: str, text: str) -> None:
    """Write a value to a file of a group. Raises OSError."""
    with open(f"{group}/{file}", "w", encoding="ascii") as opened:
        opened.write(text)


def read_file(group: str, file: str) -> str:
    """The content of a file of a group; "" if it cannot be read."""
    try:
        return procfs.read_kernel_file(f"{group}/{file}").decode(errors="replace")
    except OSError:
        return ""


def _try_write(group: str, file: str, text: str) -> bool:
    try:
        descriptor = os.open(f"{group}/{file}", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@cache
def _list_files(base: str) -> frozenset[str]:
    # Sibling groups have the same files.
    return frozenset(os.listdir(base))


def _parse_numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _own_groups(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return {part: path for line in lines for _, parts, path in [line.split(":", 2)] for part in parts.split(",")}


def _parse_mount(line: str, own: dict[str, str]) -> MountedHierarchy | None:
    left, _, right = line.partition(" - ")
    root, point = left.split()[3:5]
    kind, _, options = right.split(" ", 2)
    if kind not in ("cgroup", "cgroup2"):
        return None
    top = Path(point)
    if kind == "cgroup2":
        controllers = frozenset(read_file(point, "cgroup.controllers").split())
        path = own.get("")
    else:
        controllers = frozenset(options.split(",")) & {*NEEDED, *USEFUL}
        path = next((own[controller] for controller in controllers if controller in own), None)
    if path is None or not controllers:
        return None
    inside = Path(path).is_relative_to(root)
    return MountedHierarchy(top, top / Path(path).relative_to(root) if inside else top, controllers, kind == "cgroup2")
