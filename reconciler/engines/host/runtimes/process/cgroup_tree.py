"""Finds where this host allows control groups: version 2, version 1, or both side by side.

A container never escapes the limits of the daemon itself. Under version 1 its groups are below the daemon's own. Under
version 2 a group with processes must not have limited groups below it, and a service manager could not restart the
daemon in a group that has children with controllers. So the groups are below the nearest ancestor of the daemon's group
that already delegates controllers and is writable, and only if no group on the way has limits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes.process import cgroups

PREFIX = "reconciler-"
"""The prefix of the groups that contain the containers' groups."""
NEEDED = ("cpu", "memory")
_PIDS = "pids"
_USEFUL = ("cpuacct", "freezer", _PIDS)


class Mounted(msgspec.Struct, frozen=True):
    """A mounted hierarchy: its top directory, the daemon's own group, and its controllers."""

    top: Path
    own: Path
    controllers: frozenset[str]
    unified: bool


class CgroupTree(msgspec.Struct, frozen=True):
    """Where groups can be created: one directory under version 2, one for each controller under version 1.

    ``pids``: the number of processes can be limited too.
    """

    bases: tuple[Path, ...]
    unified: bool
    pids: bool = False

    def make(self, name: str, limits: cgroups.Limits) -> tuple[str, ...]:
        """Create the groups of one container with its limits. Raises OSError."""
        for base in self.bases:
            base.mkdir(exist_ok=True)
            if self.unified:
                wanted = (*NEEDED, _PIDS) if self.pids else NEEDED
                cgroups.write(base / "cgroup.subtree_control", " ".join(f"+{each}" for each in wanted))
        groups = tuple(base / name for base in self.bases)
        for group in groups:
            group.mkdir(exist_ok=True)
            cgroups.limit(group, limits)
        return tuple(map(str, groups))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """All existing groups by the name of the container, also those of other daemons."""
        found: dict[str, list[str]] = {}
        for base in self.bases:
            for group in base.iterdir() if base.is_dir() else ():
                if group.is_dir():
                    found.setdefault(group.name, []).append(str(group))
        return {name: tuple(groups) for name, groups in found.items()}

    def release(self) -> None:
        """Remove the directories of containers' groups if they are empty."""
        for base in self.bases:
            cgroups.try_remove(base)


def name_for(root: Path) -> str:
    """The name of the group that contains the groups of the location in that directory."""
    return f"{PREFIX}{blake2b(bytes(root), digest_size=6).hexdigest()}"


def mounts(proc: Path = Path("/proc")) -> list[Mounted]:
    """The mounted hierarchies of this host."""
    try:
        own = _own_groups(proc / "self/cgroup")
        lines = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [found for line in lines if (found := _parse_mount(line, own)) is not None]


def find(name: str, found: Sequence[Mounted]) -> CgroupTree | None:
    """Where groups can be created below one called ``name``; None if nowhere. Tries it by creating one."""
    for hierarchy in (_version_2(name, found), _version_1(name, found)):
        if hierarchy is not None and _works(hierarchy):
            return hierarchy
    return None


def groups_of(pid: int) -> tuple[str, ...]:
    """The groups of the container of ``pid``, as far as their names identify them."""
    found = []
    try:
        own = _own_groups(Path(f"/proc/{pid}/cgroup"))
    except OSError:
        return ()
    for line in cgroups.read_file("/proc/self", "mountinfo").splitlines():
        mounted = _parse_mount(line, own)
        if mounted is not None and mounted.own.parent.name.startswith(PREFIX):
            found.append(str(mounted.own))
    return tuple(dict.fromkeys(found))


def _own_groups(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return {part: path for line in lines for _, parts, path in [line.split(":", 2)] for part in parts.split(",")}


def _parse_mount(line: str, own: dict[str, str]) -> Mounted | None:
    left, _, right = line.partition(" - ")
    root, point = left.split()[3:5]
    kind, _, options = right.split(" ", 2)
    if kind not in ("cgroup", "cgroup2"):
        return None
    top = Path(point)
    if kind == "cgroup2":
        controllers = frozenset(cgroups.read_file(point, "cgroup.controllers").split())
        path = own.get("")
    else:
        controllers = frozenset(options.split(",")) & {*NEEDED, *_USEFUL}
        path = next((own[each] for each in controllers if each in own), None)
    if path is None or not controllers:
        return None
    inside = Path(path).is_relative_to(root)
    return Mounted(top, top / Path(path).relative_to(root) if inside else top, controllers, kind == "cgroup2")


def _version_2(name: str, found: Sequence[Mounted]) -> CgroupTree | None:
    for mounted in found:
        if mounted.unified and mounted.controllers.issuperset(NEEDED):
            place = _delegating_group(mounted)
            if place is None:
                return None
            divided = cgroups.read_file(str(place), "cgroup.subtree_control").split()
            return CgroupTree((place / name,), unified=True, pids=_PIDS in divided)
    return None


def _delegating_group(mounted: Mounted) -> Path | None:
    if mounted.own == mounted.top:
        # Only the root group has no type, and only it may have both processes and limited groups.
        return mounted.top if not (mounted.top / "cgroup.type").exists() else None
    group = mounted.own
    while group != mounted.top and not _has_limits(group):
        group = group.parent
        divided = set(cgroups.read_file(str(group), "cgroup.subtree_control").split())
        if divided.issuperset(NEEDED) and os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK):
            return group
    return None


def _has_limits(group: Path) -> bool:
    values = (cgroups.read_file(str(group), file).split() for file in ("memory.max", "memory.high", "cpu.max"))
    return any(value and value[0] != "max" for value in values)


def _version_1(name: str, found: Sequence[Mounted]) -> CgroupTree | None:
    own = {controller: mounted.own for mounted in found if not mounted.unified for controller in mounted.controllers}
    if not own.keys() >= set(NEEDED):
        return None
    useful = [own[each] for each in _USEFUL if each in own and os.access(own[each], os.W_OK)]
    places = dict.fromkeys([*(own[each] for each in NEEDED), *useful])
    pids = own.get(_PIDS) in places
    return CgroupTree(tuple(place / name for place in places), unified=False, pids=pids)


def _works(hierarchy: CgroupTree) -> bool:
    try:
        hierarchy.make("trial", cgroups.Limits(1000, 1 << 30, 1000))
    except OSError:
        return False
    finally:
        cgroups.remove([str(base / "trial") for base in hierarchy.bases])
    return True
