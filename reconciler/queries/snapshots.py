"""The snapshots of volumes, as their volume sets were last observed, and the final ones of deleted volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from reconciler.engines.plugin import make_all_readers
from reconciler.engines.reading import LocationReader, SupportsFinalSnapshots
from reconciler.engines.volumes import VolumeSnapshot, read_volumes
from reconciler.errors import RefusedError
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
    applied = records.applied.items(Kind.VOLUMESET) if key is None else records.applied.get(key)
    return [
        VolumeSnapshot(record.key, record.location, volume.index, snapshot)
        for record in applied
        if (state := read_volumes(record.state)) is not None
        for volume in state.volumes
        for snapshot in sorted(volume.volume_snapshots, key=lambda item: item.created, reverse=True)
    ]


def list_final_snapshots(settings: Settings, key: Key | None) -> Sequence[VolumeSnapshot]:
    """The final snapshots of deleted volumes of ``key``, or of all, from the newest to the oldest.

    Raises RefusedError if ``key`` is no volume set, and EngineError if a snapshot cannot be read.
    """
    _check_kind(key)
    snapshots = [snapshot for _, snapshot in find_final_snapshots(settings, key)]
    return sorted(snapshots, key=lambda item: item.snapshot.created, reverse=True)


def find_final_snapshots(
    settings: Settings, key: Key | None
) -> Iterator[tuple[SupportsFinalSnapshots, VolumeSnapshot]]:
    """The final snapshots of ``key``, or of all, each with the reader of its location. Raises EngineError."""
    readers: Sequence[LocationReader] = ()
    with suppress(PermissionError):  # as where there are none
        readers = make_all_readers(settings)
    for reader in readers:
        if isinstance(reader, SupportsFinalSnapshots):
            yield from ((reader, snapshot) for snapshot in reader.final_snapshots() if key in (None, snapshot.key))


def _check_kind(key: Key | None) -> None:
    if key is not None and key.kind is not Kind.VOLUMESET:
        raise RefusedError(f"{key} is no volume set; only volume sets have snapshots")
