"""Which containers have a user namespace, and which ids of this host their users are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.engines.host.disk.ownership import IDS, IdRange
from reconciler.engines.host.spec import WorkloadSpec

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.podman.capabilities import Capabilities

FIRST = 0x7000_0000
"""The first id that no program gives away: systemd lists those from here to 0x7ffd_ffff as unused.

Those of useradd for /etc/subuid, of systemd's machines and of directories of users are all below.
"""
_RANGES = 4094


def id_range(owner: str, first: int | None) -> IdRange:
    """The ids of the containers of the location with the labels of ``owner``, a hexadecimal number.

    They begin at ``first``, or else where the name of the location says: two that choose the same share it.
    """
    return IdRange(first if first is not None else FIRST + int(owner, 16) % _RANGES * IDS)


def lacks_for_users(wanted: WorkloadSpec, known: Capabilities) -> str:
    """Why containers of ``wanted`` are in no user namespace, although nobody has said so; "" if they are in one."""
    if wanted.host_users or known.rootless:
        return ""
    if known.lacks_for_namespaces:
        return known.lacks_for_namespaces
    if wanted.writes_volumes and known.lacks_for_mapped_mounts:
        return f"its volumes need one for their owners, and {known.lacks_for_mapped_mounts}"
    for number in (wanted.user or 0, wanted.group):
        if number >= IDS:
            return f"it has the users and groups below {IDS}, and the manifest names {number}"
    return ""


def has_namespace(wanted: WorkloadSpec, known: Capabilities) -> bool:
    """Whether new containers of ``wanted`` get a user namespace of their replica."""
    return not (wanted.host_users or known.rootless or lacks_for_users(wanted, known))
