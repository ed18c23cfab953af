"""The volumes of a volume set at one location: pure, shaped as docs/platform/volumeset.md#status; sizes in GB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

MOST_CAPACITY = 16384
"""The largest volume of either performance class, in GB (docs/platform/volumeset.md#performance-classes)."""


CLONED_FROM = "reconciler/cloned-from"
"""The tag of a clone of a snapshot; its value names the volume and the snapshot that it is of."""

PROVEN = "reconciler/proven"
"""The tag of a snapshot that was restored to a copy and checked; its value is when, ISO 8601, UTC."""

BEFORE_RESTORE = "reconciler/before-restore"
"""The tag of a snapshot of what a restore replaced; its value is the snapshot that was restored."""


class VolumeLifecycle(StrEnum):
    """The state of a volume.

    It is bound to a replica; unbound if the workload has no replica for it; unused if no workload uses the volume set;
    creating until it has its device; repairing while its device is lost; deleted once its data are.
    """

    CREATING = "creating"
    UNUSED = "unused"
    BOUND = "bound"
    UNBOUND = "unbound"
    DELETED = "deleted"
    REPAIRING = "repairing"


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot of a volume; times are ISO 8601, UTC; ``expires`` is empty for a permanent one."""

    name: str
    created: str
    size: float
    expires: str = ""
    tags: dict[str, str] = {}


class ReplicaVolume(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of one replica index; ``grows_detached`` is set where its replica has to stop while it grows.

    ``last_proven`` is when one of its snapshots was last proven, ISO 8601, UTC; it is not set if none was.
    """

    index: int
    lifecycle: VolumeLifecycle
    current_size: float
    current_bytes_used: int = 0
    volume_snapshots: tuple[Snapshot, ...] = ()
    grows_detached: bool | msgspec.UnsetType = msgspec.UNSET
    last_proven: str | msgspec.UnsetType = msgspec.UNSET


class VolumeSetState(msgspec.Struct, frozen=True, rename="camel"):
    """A volume set at the location ``name``; ``used_by_workload`` is a link, empty if no workload uses it."""

    name: str
    volumes: tuple[ReplicaVolume, ...] = ()
    used_by_workload: str = ""


class VolumeId(msgspec.Struct, frozen=True, order=True):
    """The volume of one replica ordinal of a volume set."""

    volumeset: Key
    index: int

    def __str__(self) -> str:
        return f"volume {self.index} of {self.volumeset}"


class VolumeSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of the volume ``index`` of the volume set ``key`` at ``location``."""

    key: Key
    location: str
    index: int
    snapshot: Snapshot


def read_volumes(state: bytes) -> VolumeSetState | None:
    """The volume set in ``state``; None if it contains none."""
    try:
        return msgspec.json.decode(state, type=VolumeSetState)
    except msgspec.DecodeError:
        return None


def bind_volumes(state: VolumeSetState, workload: str, replicas: int, capacity: float) -> VolumeSetState:
    """``state`` with a volume for each of ``replicas`` of ``workload``; further volumes remain, unbound or unused.

    Every volume has at least ``capacity``; a volume that a command or autoscaling expanded beyond it keeps its size.
    """
    free = VolumeLifecycle.UNBOUND if workload else VolumeLifecycle.UNUSED
    there = {volume.index: _resize_volume(volume, replicas, capacity, free) for volume in state.volumes}
    for index in range(replicas):
        there.setdefault(index, ReplicaVolume(index, VolumeLifecycle.BOUND, capacity))
    volumes = tuple(there[index] for index in sorted(there))
    return VolumeSetState(state.name, volumes, workload)


def release_volumes(state: VolumeSetState, capacity: float) -> VolumeSetState:
    """``state`` without a workload: its volumes and their data remain."""
    return bind_volumes(state, "", 0, capacity)


def _resize_volume(volume: ReplicaVolume, replicas: int, capacity: float, free: VolumeLifecycle) -> ReplicaVolume:
    bound = volume.index < replicas
    if volume.lifecycle is VolumeLifecycle.DELETED and not bound:
        return volume
    size = max(volume.current_size, capacity)
    return msgspec.structs.replace(volume, lifecycle=VolumeLifecycle.BOUND if bound else free, current_size=size)


def on_volume(state: VolumeSetState, index: int, change: Callable[[ReplicaVolume], ReplicaVolume]) -> VolumeSetState:
    """``state`` with one volume changed. Raises EngineError if there is no such volume."""
    if all(volume.index != index for volume in state.volumes):
        indexes = ", ".join(str(volume.index) for volume in state.volumes) or "none"
        raise make_rejection(
            f"there is no volume {index} at {state.name}; there are: {indexes}", Reason.VOLUME_NOT_FOUND
        )
    volumes = tuple(change(volume) if volume.index == index else volume for volume in state.volumes)
    return msgspec.structs.replace(state, volumes=volumes)


def expand_volume(volume: ReplicaVolume, size: float) -> ReplicaVolume:
    """``volume`` expanded to ``size`` (docs/platform/volumeset.md#growth). Raises EngineError for any other size."""
    if volume.current_size >= size:
        raise make_rejection(f"volume {volume.index} has {volume.current_size:g} GB; newStorageCapacity must be larger")
    if size > MOST_CAPACITY:
        raise make_rejection(f"newStorageCapacity is {size:g}; a volume holds at most {MOST_CAPACITY} GB")
    return msgspec.structs.replace(_with_data(volume), current_size=size)


def clear_volume(volume: ReplicaVolume, capacity: float) -> ReplicaVolume:
    """``volume`` without data; in use, it gets a device of its size, ``capacity`` at least.

    See docs/platform/volumeset.md#commands.
    """
    if volume.lifecycle is VolumeLifecycle.BOUND:
        size = max(volume.current_size, capacity)
        return msgspec.structs.replace(volume, current_size=size, current_bytes_used=0)
    return msgspec.structs.replace(volume, lifecycle=VolumeLifecycle.DELETED, current_size=0, current_bytes_used=0)


def add_snapshot(volume: ReplicaVolume, snapshot: Snapshot) -> ReplicaVolume:
    """``volume`` with one more snapshot. Raises EngineError if the name exists."""
    if any(one.name == snapshot.name for one in volume.volume_snapshots):
        raise make_rejection(f"volume {volume.index} has a snapshot {snapshot.name} already", Reason.SNAPSHOT_EXISTS)
    taken = msgspec.structs.replace(snapshot, size=_with_data(volume).current_size)
    return msgspec.structs.replace(volume, volume_snapshots=(*volume.volume_snapshots, taken))


def without_snapshot(volume: ReplicaVolume, name: str) -> ReplicaVolume:
    """``volume`` without the snapshot ``name``. Raises EngineError if there is none."""
    gone = _find_snapshot(volume, name)
    remaining = tuple(one for one in volume.volume_snapshots if one is not gone)
    return msgspec.structs.replace(volume, volume_snapshots=remaining, last_proven=last_proof(remaining))


def prove_snapshot(volume: ReplicaVolume, name: str, at: str) -> ReplicaVolume:
    """``volume`` whose snapshot ``name`` was proven ``at`` that time. Raises EngineError if there is none."""
    proven = _find_snapshot(volume, name)
    proven = msgspec.structs.replace(proven, tags={**proven.tags, PROVEN: at})
    snapshots = tuple(proven if one.name == name else one for one in volume.volume_snapshots)
    return msgspec.structs.replace(volume, volume_snapshots=snapshots, last_proven=last_proof(snapshots))


def last_proof(snapshots: Iterable[Snapshot]) -> str | msgspec.UnsetType:
    """When one of ``snapshots`` was last proven, ISO 8601; not set if none was."""
    return max((snapshot.tags[PROVEN] for snapshot in snapshots if PROVEN in snapshot.tags), default=msgspec.UNSET)


def restore_snapshot(volume: ReplicaVolume, name: str) -> ReplicaVolume:
    """``volume`` as it was at the snapshot ``name``, never smaller than now. Raises EngineError if there is none."""
    snapshot = _find_snapshot(volume, name)
    lifecycle = VolumeLifecycle.UNBOUND if volume.lifecycle is VolumeLifecycle.DELETED else volume.lifecycle
    return msgspec.structs.replace(volume, lifecycle=lifecycle, current_size=max(volume.current_size, snapshot.size))


def find_snapshot(state: VolumeSetState, index: int, name: str) -> Snapshot:
    """The snapshot ``name`` of a volume. Raises EngineError if there is none."""
    match = next((volume for volume in state.volumes if volume.index == index), None)
    return _find_snapshot(match or ReplicaVolume(index, VolumeLifecycle.DELETED, 0), name)


def data_in_words(state: VolumeSetState) -> str:
    """The volumes with data, how much they hold, and their newest snapshots; "" if there is none."""
    volumes = [
        volume for volume in state.volumes if volume.lifecycle is not VolumeLifecycle.DELETED and volume.current_size
    ]
    return "; ".join(_in_words(volume) for volume in volumes)


def _in_words(volume: ReplicaVolume) -> str:
    newest = newest_snapshot(volume)
    used = f"{size_in_words(volume.current_bytes_used)} used"
    snapshot = f"newest snapshot of {newest}" if newest else "no snapshot"
    return f"volume {volume.index} with {used}, {snapshot}"


def newest_snapshot(volume: ReplicaVolume) -> str:
    """The time of the newest snapshot of ``volume``, ISO 8601; "" if it has none."""
    return max((volume_snapshot.created for volume_snapshot in volume.volume_snapshots), default="")


def size_in_words(size: int) -> str:
    """``size`` bytes for people: in the largest unit in which it is at least a tenth."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= (1 << shift) / 10:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"


def make_rejection(message: str, reason: Reason = Reason.INVALID_COMMAND) -> EngineError:
    """The error for a command that can never succeed as requested."""
    return EngineError(message, reason=reason, retry=False)


def _with_data(volume: ReplicaVolume) -> ReplicaVolume:
    if volume.lifecycle is VolumeLifecycle.DELETED:
        raise make_rejection(
            f"the storage of volume {volume.index} is deleted; restore a snapshot or let a replica use it"
        )
    return volume


def _find_snapshot(volume: ReplicaVolume, name: str) -> Snapshot:
    for snapshot in volume.volume_snapshots:
        if snapshot.name == name:
            return snapshot
    raise make_rejection(f"volume {volume.index} has no snapshot {name}", Reason.SNAPSHOT_NOT_FOUND)
