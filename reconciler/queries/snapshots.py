"""The snapshots of volumes, as their volume sets were last observed."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.volumes import VolumeSnapshot, read_volumes
from reconciler.errors import RefusedError
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_present
from reconciler.records.store import Records


def list_snapshots(records: Records, key: Key | None) -> Sequence[VolumeSnapshot]:
    """The snapshots of ``key``, or of all volume sets, those of a volume from the newest to the oldest.

    Raises RefusedError if ``key`` is no volume set, and NotFoundError if there is no such volume set.
    """
    if key is not None:
        if key.kind is not Kind.VOLUMESET:
            raise RefusedError(f"{key} is no volume set; only volume sets have snapshots")
        check_present(records, key)
    found = records.applied.items(Kind.VOLUMESET) if key is None else records.applied.get(key)
    return [
        VolumeSnapshot(record.key, record.location, volume.index, snapshot)
        for record in found
        if (state := read_volumes(record.state)) is not None
        for volume in state.volumes
        for snapshot in sorted(volume.volume_snapshots, key=lambda each: each.created, reverse=True)
    ]
