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

from reconciler.engines.host.runtimes import cgroups
from reconciler.listing import list_paths

PREFIX = "reconciler-"
"""The prefix of the groups that contain the containers' groups."""
_PIDS = "pids"


class CgroupTree(msgspec.Struct, frozen=True):
    """Where groups can be created: one directory under version 2, one for each controller under version 1.

    ``pids``: the number of processes can be limited too.
    """

    bases: tuple[Path, ...]
    unified: bool
    pids: bool = False

    def make(self, name: str, limits: cgroups.GroupLimits) -> tuple[str, ...]:
        """Create the groups of one container with its limits. Raises OSError."""
        for base in self.bases:
            base.mkdir(exist_ok=True)
            if self.unified:
                controllers = (*cgroups.NEEDED, _PIDS) if self.pids else cgroups.NEEDED
                cgroups.write_value(str(base), "cgroup.subtree_control", " ".join(f"+{text}" for text in controllers))
        groups = tuple(base / name for base in self.bases)
        for group in groups:
            group.mkdir(exist_ok=True)
            cgroups.set_limits(group, limits)
        return tuple(map(str, groups))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """All existing groups by the name of the container, also those of other daemons."""
        groups_by_name: dict[str, list[str]] = {}
        for base in self.bases:
            for group in list_paths(base, "*"):
                if group.is_dir():
                    groups_by_name.setdefault(group.name, []).append(str(group))
        return {name: tuple(groups) for name, groups in groups_by_name.items()}

    def release(self) -> None:
        """Remove the directories of containers' groups if they are empty."""
        for base in self.bases:
            cgroups.try_remove(base)


def name_for(root: Path) -> str:
    """The name of the group that contains the groups of the location in that directory."""
    return f"{PREFIX}{blake2b(bytes(root), digest_size=6).hexdigest()}"


def find_cgroup_tree(name: str, mounteds: Sequence[cgroups.MountedHierarchy]) -> CgroupTree | None:
    """Where groups can be created below one called ``name``; None if nowhere. Tries it by creating one."""
    for hierarchy in (_version_2(name, mounteds), _version_1(name, mounteds)):
        if hierarchy is not None and _can_create_groups(hierarchy):
            return hierarchy
    return None


def groups_of(pid: int) -> tuple[str, ...]:
    """The groups of the container of ``pid``, as far as their names identify them."""
    paths = (mounted.own for mounted in cgroups.list_mounts(pid))
    return tuple(dict.fromkeys(str(own) for own in paths if own.parent.name.startswith(PREFIX)))


def _version_2(name: str, mounteds: Sequence[cgroups.MountedHierarchy]) -> CgroupTree | None:
    for mounted in mounteds:
        if mounted.unified and mounted.controllers.issuperset(cgroups.NEEDED):
            path = _delegating_group(mounted)
            if path is None:
                return None
            divided = cgroups.read_file(str(path), "cgroup.subtree_control").split()
            return CgroupTree((path / name,), unified=True, pids=_PIDS in divided)
    return None


def _delegating_group(mounted: cgroups.MountedHierarchy) -> Path | None:
    if mounted.own == mounted.top:
        # Only the root group has no type, and only it may have both processes and limited groups.
        return mounted.top if not (mounted.top / "cgroup.type").exists() else None
    group = mounted.own
    while group != mounted.top and not _has_limits(group):
        group = group.parent
        divided = set(cgroups.read_file(str(group), "cgroup.subtree_control").split())
        writable = os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK)
        if divided.issuperset(cgroups.NEEDED) and writable:
            return group
    return None


def _has_limits(group: Path) -> bool:
    values = (cgroups.read_file(str(group), file).split() for file in ("memory.max", "memory.high", "cpu.max"))
    return any(value and value[0] != "max" for value in values)


def _version_1(name: str, mounteds: Sequence[cgroups.MountedHierarchy]) -> CgroupTree | None:
    own = {controller: mounted.own for mounted in mounteds if not mounted.unified for controller in mounted.controllers}
    if not own.keys() >= set(cgroups.NEEDED):
        return None
    useful = [own[text] for text in cgroups.USEFUL if text in own and os.access(own[text], os.W_OK)]
    places = dict.fromkeys([*(own[text] for text in cgroups.NEEDED), *useful])
    pids = own.get(_PIDS) in places
    return CgroupTree(tuple(path / name for path in places), unified=False, pids=pids)


def _can_create_groups(hierarchy: CgroupTree) -> bool:
    try:
        hierarchy.make("trial", cgroups.GroupLimits(1000, 1 << 30, 1000))
    except OSError:
        return False
    finally:
        cgroups.remove_groups([str(base / "trial") for base in hierarchy.bases])
    return True
