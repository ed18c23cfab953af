"""The snapshots of a volume: each is a directory that gets its name when it is complete."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.engines.host.disk.atomic import sync_directory, write_durable
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes.layout import VolumeFiles, read_json
from reconciler.engines.host.volumes.protocol import StoredSnapshot, VolumeBackend
from reconciler.engines.volumes import make_rejection
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.reasons import Reason

_RECORD = "snapshot.json"
_DATA = "data"
_REMEDY = "restore this file from a backup, or remove its directory, which is this snapshot alone"


class Listing(NamedTuple):
    """The snapshots of a volume, the oldest first, and for each that cannot be read what to do."""

    snapshots: tuple[StoredSnapshot, ...]
    damages: tuple[str, ...]


def list_snapshots(files: VolumeFiles) -> Listing:
    """The snapshots of a volume. Raises OSError."""
    snapshots, damages = [], []
    for path in list_paths(files.folder, "snapshots/*"):
        try:
            if (snapshot := read_snapshot(path)) is not None:
                snapshots.append(snapshot)
        except EngineError as error:
            damages.append(str(error))
    return Listing(tuple(sorted(snapshots, key=lambda entry: (entry.created, entry.name))), tuple(damages))


def read_snapshot(folder: Path) -> StoredSnapshot | None:
    """The record of a snapshot; None if there is none. Raises EngineError."""
    return read_json(folder / _RECORD, StoredSnapshot, _REMEDY)


def write_snapshot(folder: Path, snapshot: StoredSnapshot) -> None:
    """Write the record of a snapshot, whose data are complete. Raises OSError."""
    write_durable(folder / _RECORD, msgspec.json.encode(snapshot))


def snapshot_data(folder: Path) -> Path:
    """The data of a snapshot: a file or a directory."""
    return folder / _DATA


def take_snapshot(backend: VolumeBackend, files: VolumeFiles, planned: StoredSnapshot) -> StoredSnapshot:
    """Take a snapshot of a detached volume. Raises OSError and EngineError: then there is none."""
    try:
        begin_snapshot(backend, files, planned.name)
        copy_snapshot(backend, files, planned.name)
        return complete_snapshot(backend, files, planned)
    finally:
        with suppress(OSError, EngineError):
            discard_snapshot(backend, files, planned.name)


def begin_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> None:
    """Make room for the data of a snapshot that is to be taken. Raises OSError, and EngineError if there is one."""
    if files.snapshot(name).exists():
        raise make_rejection(f"{files} has a snapshot {name} already", Reason.SNAPSHOT_EXISTS)
    discard_snapshot(backend, files, name)
    files.make_directory(_get_staging_directory(files, name))


def prepare_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> None:
    """Copy ahead what the snapshot needs. Raises OSError and EngineError, also FreezeTimeout."""
    backend.prepare(files, snapshot_data(_get_staging_directory(files, name)))


def copy_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> None:
    """Copy the data as they are now. Raises OSError and EngineError, also FreezeTimeout."""
    backend.copy(files, snapshot_data(_get_staging_directory(files, name)))


def complete_snapshot(backend: VolumeBackend, files: VolumeFiles, planned: StoredSnapshot) -> StoredSnapshot:
    """Make a snapshot of the copied data; size and checksum are filled in. Raises OSError: then there is none."""
    folder, staged = files.snapshot(planned.name), _get_staging_directory(files, planned.name)
    data = snapshot_data(staged)
    size, checksum = backend.size(data), backend.digest(data)
    snapshot = msgspec.structs.replace(planned, size=size, checksum=checksum)
    write_snapshot(staged, snapshot)
    files.make_directory(folder.parent)
    staged.rename(folder)
    sync_directory(folder.parent)
    return snapshot


def discard_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> None:
    """Remove what there is of a snapshot that is not complete. Raises OSError."""
    remove_staged(backend, _get_staging_directory(files, name))


def _get_staging_directory(files: VolumeFiles, name: str) -> Path:
    """The directory of a snapshot that is not complete."""
    return files.partial / f"new-{files.snapshot(name).name}"


def delete_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> None:
    """Delete a snapshot; a full disk does not prevent it. Raises EngineError if there is none, and OSError."""
    find_snapshot(files, name)
    delete_folder(backend, files.snapshot(name))


def delete_folder(backend: VolumeBackend, folder: Path) -> None:
    """Delete the snapshot in ``folder``. Raises OSError."""
    # Without its record it is none, whatever the rest takes.
    (folder / _RECORD).unlink(missing_ok=True)
    remove_staged(backend, folder)


def find_snapshot(files: VolumeFiles, name: str) -> StoredSnapshot:
    """The snapshot ``name``. Raises EngineError if there is none."""
    snapshot = read_snapshot(files.snapshot(name))
    if snapshot is None:
        raise make_rejection(f"{files} has no snapshot {name}", Reason.SNAPSHOT_NOT_FOUND)
    return snapshot


def verify_snapshot(backend: VolumeBackend, files: VolumeFiles, name: str) -> tuple[StoredSnapshot, Path]:
    """The snapshot ``name`` and its data, which match its checksum. Raises EngineError and OSError."""
    snapshot = find_snapshot(files, name)
    data = snapshot_data(files.snapshot(name))
    if not data.exists() or backend.digest(data) != snapshot.checksum:
        raise EngineError(
            f"the data of the snapshot {name} of {files} were changed after it was taken, so it is not restored: "
            "restore another one",
            reason=Reason.SNAPSHOT_DAMAGED,
            retry=False,
        )
    return snapshot, data


def remove_staged(backend: VolumeBackend, path: Path) -> None:
    """Remove the directory of a snapshot, with its data. Raises OSError."""
    backend.remove(snapshot_data(path))
    remove_tree(path)
