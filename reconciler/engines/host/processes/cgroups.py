"""Limits by control groups, wherever this host lets us make some: version 2, version 1, or both side by side.

A container never leaves the limits that somebody has put on the daemon. Under version 1 its groups lie below the
daemon's own. Under version 2 no group with processes may have limited ones below it, and a service manager could not
start the daemon again in a group that we have divided; so they lie below the nearest group above the daemon that is
divided already and that we may write to, and only if nothing on the way there is limited.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from reconciler.engines.host.processes.proc import read

PREFIX = "reconciler-"
"""What the groups below which containers have theirs begin with."""
NEEDED = ("cpu", "memory")
_USEFUL = ("cpuacct", "freezer")
_USED = frozenset({"memory.current", "memory.usage_in_bytes"})
_PERIOD = 100_000
_LEAST_QUOTA = 1_000
_PATIENCE = 1.0


class Mounted(msgspec.Struct, frozen=True):
    """A hierarchy as this host has it: where the daemon's own group lies, and where the hierarchy begins."""

    top: Path
    own: Path
    controllers: frozenset[str]
    unified: bool


class Hierarchy(msgspec.Struct, frozen=True):
    """Where groups can be made: one directory under version 2, one for each controller under version 1."""

    bases: tuple[Path, ...]
    unified: bool

    def make(self, name: str, cpu: int, memory: int) -> tuple[str, ...]:
        """Groups of one container with its limits: millicores, and bytes. Raises OSError."""
        for base in self.bases:
            base.mkdir(exist_ok=True)
            if self.unified:
                _write(base / "cgroup.subtree_control", " ".join(f"+{each}" for each in NEEDED))
        groups = tuple(base / name for base in self.bases)
        for group in groups:
            group.mkdir(exist_ok=True)
            _limit(group, cpu, memory)
        return tuple(map(str, groups))

    def leave(self) -> None:
        """Remove what containers' groups lie below, where there are none."""
        for base in self.bases:
            _removed(base)


def mounts(proc: Path = Path("/proc")) -> list[Mounted]:
    """The hierarchies that this host has mounted."""
    try:
        own = _own(proc / "self/cgroup")
        lines = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [found for line in lines if (found := _mounted(line, own)) is not None]


def find(name: str, found: Sequence[Mounted]) -> Hierarchy | None:
    """Where groups can be made below one called ``name``; None where nowhere. Tries it by making one."""
    for hierarchy in (_unified(name, found), _divided(name, found)):
        if hierarchy is not None and _works(hierarchy):
            return hierarchy
    return None


def of(pid: int) -> tuple[str, ...]:
    """The groups that were made for the container of ``pid``, as far as they can be told by their names."""
    found = []
    try:
        own = _own(Path(f"/proc/{pid}/cgroup"))
    except OSError:
        return ()
    for line in _read("/proc/self", "mountinfo").splitlines():
        mounted = _mounted(line, own)
        if mounted is not None and mounted.own.parent.name.startswith(PREFIX):
            found.append(str(mounted.own))
    return tuple(dict.fromkeys(found))


def join(groups: Sequence[str], pid: int) -> None:
    """Put a process into the groups. Raises OSError."""
    for group in groups:
        _write(Path(group, "cgroup.procs"), str(pid))


def members(groups: Sequence[str]) -> set[int]:
    """The processes in the groups, as far as they can be seen from here."""
    found = {int(pid) for group in groups for pid in _read(group, "cgroup.procs").split()}
    return found - {0, os.getpid()}


def kill(groups: Sequence[str]) -> None:
    """Send SIGKILL to all in the groups, those that are just being made too as far as this host can."""
    frozen = [group for group in groups if _try_write(group, "freezer.state", "FROZEN")]
    if any(_try_write(group, "cgroup.kill", "1") for group in groups):
        return
    for pid in members(groups):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, 9)
    thaw(frozen)


def thaw(groups: Sequence[str]) -> None:
    """Let go on what a daemon that died while it killed has left frozen."""
    for group in groups:
        _try_write(group, "freezer.state", "THAWED")


def usage(groups: Sequence[str]) -> tuple[float, int] | None:
    """CPU seconds since the start and bytes of memory without the file cache that can go; None where not known."""
    seconds = memory = None
    for group in groups:
        files = _files(os.path.dirname(group))
        if "cpuacct.usage" in files:
            seconds = int(_read(group, "cpuacct.usage") or 0) / 1e9
        elif "cpu.max" in files:
            seconds = _numbers(_read(group, "cpu.stat")).get("usage_usec", 0) / 1e6
        if used := files & _USED:
            stat = _numbers(_read(group, "memory.stat"))
            idle = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            memory = max(0, int(_read(group, *used) or 0) - idle)
    return None if seconds is None or memory is None else (seconds, memory)


def out_of_memory(groups: Sequence[str]) -> bool:
    """Whether the kernel has killed something in the groups because their memory was used up."""
    texts = (_read(group, file) for group in groups for file in ("memory.events", "memory.oom_control"))
    return any(_numbers(text).get("oom_kill", 0) > 0 for text in texts)


def remove(groups: Sequence[str], current: Hierarchy | None) -> None:
    """Remove the groups of a container that is over. The kernel may need a moment to see that.

    What they lie below goes too, unless it is in use as ``current``: a daemon may begin in another group than the last.
    """
    for group in map(Path, groups):
        deadline = time.monotonic() + _PATIENCE
        while not _removed(group) and time.monotonic() < deadline:
            time.sleep(0.005)
        if current is None or group.parent not in current.bases:
            _removed(group.parent)


def _limit(group: Path, cpu: int, memory: int) -> None:
    quota = max(_LEAST_QUOTA, cpu * _PERIOD // 1000)
    if (group / "cpu.max").exists():
        _write(group / "cpu.max", f"{quota} {_PERIOD}")
    if (group / "memory.max").exists():
        _write(group / "memory.max", str(memory))
        _try_write(str(group), "memory.swap.max", "0")
    if (group / "cpu.cfs_quota_us").exists():
        _write(group / "cpu.cfs_period_us", str(_PERIOD))
        _write(group / "cpu.cfs_quota_us", str(quota))
    if (group / "memory.limit_in_bytes").exists():
        _write(group / "memory.limit_in_bytes", str(memory))
        _try_write(str(group), "memory.memsw.limit_in_bytes", str(memory))


def _own(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return {part: path for line in lines for _, parts, path in [line.split(":", 2)] for part in parts.split(",")}


def _mounted(line: str, own: dict[str, str]) -> Mounted | None:
    left, _, right = line.partition(" - ")
    root, point = left.split()[3:5]
    kind, _, options = right.split(" ", 2)
    if kind not in ("cgroup", "cgroup2"):
        return None
    top = Path(point)
    if kind == "cgroup2":
        controllers = frozenset(_read(point, "cgroup.controllers").split())
        path = own.get("")
    else:
        controllers = frozenset(options.split(",")) & {*NEEDED, *_USEFUL}
        path = next((own[each] for each in controllers if each in own), None)
    if path is None or not controllers:
        return None
    inside = Path(path).is_relative_to(root)
    return Mounted(top, top / Path(path).relative_to(root) if inside else top, controllers, kind == "cgroup2")


def _unified(name: str, found: Sequence[Mounted]) -> Hierarchy | None:
    for mounted in found:
        if mounted.unified and mounted.controllers.issuperset(NEEDED):
            place = _divided_above(mounted)
            return Hierarchy((place / name,), unified=True) if place is not None else None
    return None


def _divided_above(mounted: Mounted) -> Path | None:
    if mounted.own == mounted.top:
        # Only the very first group has no type, and only it may have both processes and limited groups.
        return mounted.top if not (mounted.top / "cgroup.type").exists() else None
    group = mounted.own
    while group != mounted.top and not _limited(group):
        group = group.parent
        divided = set(_read(str(group), "cgroup.subtree_control").split())
        if divided.issuperset(NEEDED) and os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK):
            return group
    return None


def _limited(group: Path) -> bool:
    values = (_read(str(group), file).split() for file in ("memory.max", "memory.high", "cpu.max"))
    return any(value and value[0] != "max" for value in values)


def _divided(name: str, found: Sequence[Mounted]) -> Hierarchy | None:
    own = {controller: mounted.own for mounted in found if not mounted.unified for controller in mounted.controllers}
    if not own.keys() >= set(NEEDED):
        return None
    useful = [own[each] for each in _USEFUL if each in own and os.access(own[each], os.W_OK)]
    places = dict.fromkeys([*(own[each] for each in NEEDED), *useful])
    return Hierarchy(tuple(place / name for place in places), unified=False)


def _works(hierarchy: Hierarchy) -> bool:
    try:
        hierarchy.make("trial", 1000, 1 << 30)
    except OSError:
        return False
    finally:
        remove([str(base / "trial") for base in hierarchy.bases], None)
    return True


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="ascii") as file:
        file.write(text)


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


def _read(group: str, file: str) -> str:
    try:
        return read(f"{group}/{file}").decode(errors="replace")
    except OSError:
        return ""


@cache
def _files(base: str) -> frozenset[str]:
    # Groups side by side have the same files.
    try:
        return frozenset(os.listdir(base))
    except OSError:
        return frozenset()


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
