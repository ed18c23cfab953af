"""What the volumes of a volume set are, and what this host does not do for them; pure. Capacities are in GB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from reconciler.engines.host.volumes.layout import GIB, VolumeState
from reconciler.engines.host.volumes.protocol import StoredVolume
from reconciler.engines.volumes import ReplicaVolume, VolumeLifecycle, VolumeSetState, last_proof


def existing_volumes(
    claimed: VolumeSetState, stored: Sequence[StoredVolume], used: Mapping[int, int]
) -> VolumeSetState:
    """The volumes that exist, for status. ``claimed`` tells which replicas want one; ``used`` is in bytes."""
    bound = {volume.index for volume in claimed.volumes if volume.lifecycle is VolumeLifecycle.BOUND}
    free = VolumeLifecycle.UNBOUND if claimed.used_by_workload else VolumeLifecycle.UNUSED
    volumes = {
        volume.index: _make_volume(volume, volume.index in bound, free, used.get(volume.index, 0)) for volume in stored
    }
    for index in bound - volumes.keys():
        volumes[index] = ReplicaVolume(index, VolumeLifecycle.CREATING, 0)
    return replace(claimed, volumes=tuple(volumes[index] for index in sorted(volumes)))


def list_limitations(stored: Sequence[StoredVolume]) -> Iterator[str]:
    """A sentence for each thing that these volumes cannot have on this host."""
    yield "Volumes have no performance class: the disk of this host decides their throughput and IOPS."
    stored = [volume for volume in stored if not volume.damage]
    if any(not volume.enforced for volume in stored):
        yield "Volumes that are directories have no limit of their size but the disk."
    if any(not volume.file_system for volume in stored):
        yield "Volumes that are directories have the file system of the host."
    if any(not volume.freezes for volume in stored):
        yield "Volumes that are directories cannot be frozen: their replica stops while a snapshot is taken."
    if any(volume.grows_detached for volume in stored):
        yield "Volumes that are images with ext4 grow in use only with CAP_SYS_RESOURCE: their replica stops meanwhile."


def describe_overcommitment(stored: Sequence[StoredVolume], disk: int) -> str:
    """What the volumes promise beyond the ``disk``, in bytes; "" if it can hold all of it."""
    promised = sum(volume.capacity for volume in stored if volume.enforced and volume.state is VolumeState.READY)
    if promised * GIB <= disk:
        return ""
    return (
        f"the volumes of this location may grow to {promised:g} GB together, and their disk has {disk / GIB:.1f} GB: "
        "when it is full, their file systems fail"
    )


def _make_volume(stored: StoredVolume, bound: bool, free: VolumeLifecycle, used: int) -> ReplicaVolume:
    snapshots = tuple(snapshot.describe() for snapshot in stored.snapshots)
    proven = last_proof(snapshots)
    # A replica that wants a deleted volume gets a new one.
    if stored.state is VolumeState.DELETED:
        lifecycle = VolumeLifecycle.CREATING if bound else VolumeLifecycle.DELETED
        return ReplicaVolume(stored.index, lifecycle, 0, 0, snapshots, last_proven=proven)
    if stored.state is VolumeState.CREATING:
        return ReplicaVolume(stored.index, VolumeLifecycle.CREATING, 0, 0, snapshots)
    lifecycle = VolumeLifecycle.REPAIRING if stored.damage or stored.lost else VolumeLifecycle.BOUND if bound else free
    detached = stored.grows_detached or UNSET
    return ReplicaVolume(stored.index, lifecycle, stored.capacity, used, snapshots, detached, proven)
