"""The final snapshots of deleted volumes: their data, moved out of the way of a volume set with the same name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import sync_directory, write_durable
from reconciler.engines.host.disk.directories import file_name, remove_empty
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState, read_json
from reconciler.engines.host.volumes.protocol import DeletedVolume, StoredSnapshot, VolumeBackend
from reconciler.engines.host.volumes.snapshots import (
    delete_folder,
    read_snapshot,
    remove_staged,
    snapshot_data,
    write_snapshot,
)
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory
from reconciler.times import format_iso_time

_DELETED = "deleted-volumes"
_VOLUME = "volume.json"


class FinalSnapshots:
    """The final snapshots below the directory of a location."""

    def __init__(self, root: Path) -> None:
        self._root = root / _DELETED

    def list(self) -> Iterator[DeletedVolume]:
        """All of them that can be read."""
        for path in list_paths(self._root, "*/*/*"):
            gvc, volumeset, name = path.relative_to(self._root).parts
            with suppress(EngineError):
                snapshot = read_snapshot(path)
                if snapshot is None:
                    continue
                yield DeletedVolume(Key(Kind.VOLUMESET, gvc, volumeset), int(name.partition("-")[0]), name, snapshot)

    def keep(self, backend: VolumeBackend, files: VolumeFiles, record: VolumeRecord, now: float) -> None:
        """Make the data of a detached volume its final snapshot. Raises OSError and EngineError."""
        data = backend.storage(files)
        snapshot = StoredSnapshot(
            "final", format_iso_time(now), record.capacity, backend.size(data), backend.digest(data)
        )
        files.make_directory(files.final)
        write_durable(files.final / _VOLUME, msgspec.json.encode(record))
        write_snapshot(files.final, snapshot)
        data.rename(snapshot_data(files.final))
        self.recover(files)

    def recover(self, files: VolumeFiles) -> None:
        """Finish ``keep`` if it has moved the data, or else undo it. Raises OSError and EngineError."""
        record = read_json(files.final / _VOLUME, VolumeRecord)
        snapshot = read_snapshot(files.final)
        if record is None or snapshot is None or not snapshot_data(files.final).exists():
            remove_tree(files.final)
            return
        files.write_record(msgspec.structs.replace(record, state=VolumeState.DELETED))
        time = "".join(letter for letter in snapshot.created if letter.isalnum())
        path = self._root / files.path.parent.parent.name / files.path.parent.name
        make_directory(path)
        taken = sum(1 for _ in list_paths(path, f"{files.path.name}-{time}*"))
        files.final.rename(path / f"{files.path.name}-{time}{f'-{taken}' if taken else ''}")
        sync_directory(path)

    def record(self, volume: DeletedVolume) -> VolumeRecord | None:
        """The record of a deleted volume; None if it has no final snapshot. Raises EngineError."""
        return read_json(self._path(volume) / _VOLUME, VolumeRecord)

    def delete(self, backend: VolumeBackend, volume: DeletedVolume) -> None:
        """Delete a final snapshot. Raises OSError."""
        path = self._path(volume)
        delete_folder(backend, path)
        remove_empty(path.parent, self._root)

    def sweep(self, backends: Backends) -> tuple[str, ...]:
        """Remove what interrupted deletes left; return what an operator must know. Raises OSError."""
        reports = []
        for path in list_paths(self._root, "*/*/*"):
            try:
                record = read_json(path / _VOLUME, VolumeRecord)
                if record is not None and read_snapshot(path) is None:
                    remove_staged(backends.of(record), path)
                    remove_empty(path.parent, self._root)
            except EngineError as error:
                reports.append(str(error))
        return tuple(reports)

    def _path(self, volume: DeletedVolume) -> Path:
        return self._root / file_name(volume.volumeset.gvc) / file_name(volume.volumeset.name) / file_name(volume.name)
