"""Which containers have a user namespace, and which ids of this host their users are there."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engines.host.disk.ownership import IDS, IdRange
from reconciler.engines.host.paths import ENGINE, find_directory
from reconciler.engines.host.runtimes.podman.labels import labels_of
from reconciler.engines.host.runtimes.protocol import HostProblem
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.podman.capabilities import Capabilities

FIRST = 0x7000_0000
"""The first id that no program gives away: systemd lists those from here to 0x7ffd_ffff as unused.

Those of useradd for /etc/subuid, of systemd's machines and of directories of users are all below.
"""
# As many ranges as the unused ids have room for.
_RANGES = 4094
_FEW_INSTANCES, _ENOUGH_INSTANCES = 1024, 8192
_RESERVED_FOR = "gitops-reconciler"
"""The name in /etc/subuid and /etc/subgid with which an operator reserves ids for containers."""


def id_range(owner: str, first: int | None) -> IdRange:
    """The ids of the containers of the location with the labels of ``owner``, a hexadecimal number.

    They begin at ``first``, or else where the name of the location says: two that choose the same share it.
    """
    return IdRange(first if first is not None else FIRST + int(owner, 16) % _RANGES * IDS)


def lacks_for_users(spec: WorkloadSpec, capabilities: Capabilities) -> str:
    """Why containers of ``spec`` are in no user namespace, although no setting denies it; "" if they are in one."""
    if spec.host_users or capabilities.rootless:
        return ""
    if capabilities.lacks_for_namespaces:
        return capabilities.lacks_for_namespaces
    if spec.writes_volumes and capabilities.lacks_for_mapped_mounts:
        return f"its volumes need one for their owners, and {capabilities.lacks_for_mapped_mounts}"
    return ""


def has_namespace(spec: WorkloadSpec, capabilities: Capabilities) -> bool:
    """Whether new containers of ``spec`` get a user namespace of their replica."""
    return not (spec.host_users or capabilities.rootless or lacks_for_users(spec, capabilities))


def check_users(settings: Settings, proc: Path, etc: Path = Path("/etc")) -> Iterator[HostProblem]:
    """The problems of user namespaces on this host, for the locations of a daemon that runs as root."""
    chosen = settings.podman.user_namespaces
    if chosen.mode == "host":
        return
    if _read_number(proc / "sys/user/max_user_namespaces") == 0:
        advice = "sysctl user.max_user_namespaces=10000, or set podman.userNamespaces.mode to host"
        yield HostProblem("this host allows no user namespaces: root of a container is root of this host", advice)
    instances = _read_number(proc / "sys/fs/inotify/max_user_instances")
    if instances is not None and instances < _FEW_INSTANCES:
        message = f"all containers in user namespaces share {instances} inotify instances with root"
        advice = f"sysctl fs.inotify.max_user_instances={_ENOUGH_INSTANCES}, in a file below /etc/sysctl.d to keep it"
        yield HostProblem(message, advice)
    for location, bound in sorted(settings.locations.items()):
        if bound.engine == ENGINE and bound.runtime in ("podman", "auto"):
            owner = labels_of(find_directory(settings.state, location), location).owner
            yield from _check_id_conflicts(location, id_range(owner, chosen.first_id), etc)


def _check_id_conflicts(location: str, ids: IdRange, etc: Path) -> Iterator[HostProblem]:
    """Who else has ids that the containers of a location use."""
    names = [f"the user {passwd.pw_name}" for passwd in pwd.getpwall() if ids.overlaps(passwd.pw_uid, 1)]
    names += [f"the group {group.gr_name}" for group in grp.getgrall() if ids.overlaps(group.gr_gid, 1)]
    for path in (etc / "subuid", etc / "subgid"):
        lines = list(_subordinate_ids(path))
        others = (name for name, own in lines if name != _RESERVED_FOR and ids.overlaps(own.first, own.count))
        names += [f"{name} in {path}" for name in others]
        reserved = any(own.first <= ids.first and ids.last <= own.last for _, own in lines)
        # The ids from there on need no line: useradd leaves them alone.
        if ids.first < FIRST and not reserved:
            message = (
                f"no line in {path} reserves the ids {ids} of containers at {location}: useradd may give them away"
            )
            yield HostProblem(message, f"add the line {_RESERVED_FOR}:{ids}")
    if names:
        message = f"ids of containers at {location}, {ids}, belong to {', '.join(names)} too"
        yield HostProblem(message, "set podman.userNamespaces.firstId to the first of 65,536 ids that are free")


def _subordinate_ids(path: Path) -> Iterator[tuple[str, IdRange]]:
    """The lines of a file such as /etc/subuid: names, and ids."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, *numbers = line.strip().split(":")
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            yield name, IdRange(int(numbers[0]), int(numbers[1]))


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
