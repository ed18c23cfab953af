"""The snapshots of volumes, as their volume sets were last observed, and the final ones of deleted volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reconciler.engines.host.volumes.final import FinalSnapshots
from reconciler.engines.host.volumes.protocol import DeletedVolume
from reconciler.engines.volumes import Snapshot, VolumeSnapshot, read_volumes
from reconciler.errors import RefusedError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_present
from reconciler.records.store import Records
from reconciler.settings import Settings


def list_snapshots(records: Records, key: Key | None) -> Sequence[VolumeSnapshot]:
    """The snapshots of ``key``, or of all volume sets, those of a volume from the newest to the oldest.

    Raises RefusedError if ``key`` is no volume set, and NotFoundError if there is no such volume set.
    """
    _check_kind(key)
    if key is not None:
        check_present(records, key)
    found = records.applied.items(Kind.VOLUMESET) if key is None else records.applied.get(key)
    return [
        VolumeSnapshot(record.key, record.location, volume.index, snapshot)
        for record in found
        if (state := read_volumes(record.state)) is not None
        for volume in state.volumes
        for snapshot in sorted(volume.volume_snapshots, key=lambda each: each.created, reverse=True)
    ]


def list_final_snapshots(settings: Settings, key: Key | None) -> Sequence[VolumeSnapshot]:
    """The final snapshots of deleted volumes of ``key``, or of all, from the newest to the oldest.

    Raises RefusedError if ``key`` is no volume set, and EngineError if a snapshot on this host cannot be read.
    """
    _check_kind(key)
    found = [_final(root.name, each) for root, each in find_final_snapshots(settings, key)]
    return sorted(found, key=lambda each: each.snapshot.created, reverse=True)


def find_final_snapshots(settings: Settings, key: Key | None) -> Iterator[tuple[Path, DeletedVolume]]:
    """The final snapshots of ``key``, or of all, each with the directory of its location. Raises EngineError."""
    for root in list_paths(settings.state / "host", "*"):
        for each in FinalSnapshots(root).list():
            if key in (None, each.volumeset):
                yield root, each


def _final(location: str, volume: DeletedVolume) -> VolumeSnapshot:
    stored = volume.snapshot
    snapshot = Snapshot(volume.name, stored.created, stored.capacity, stored.expires, stored.tags)
    return VolumeSnapshot(volume.volumeset, location, volume.index, snapshot)


def _check_kind(key: Key | None) -> None:
    if key is not None and key.kind is not Kind.VOLUMESET:
        raise RefusedError(f"{key} is no volume set; only volume sets have snapshots")
