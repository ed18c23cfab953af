"""Brings an exported snapshot back, as a snapshot of a volume that can then be restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import sync_directory, write_error
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.snapshot_export.exporter import VOLUME, snapshot_tag, volume_files
from reconciler.engines.host.snapshot_export.restic import Restic
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState, read_json
from reconciler.engines.host.volumes.protocol import BackendName
from reconciler.engines.host.volumes.snapshots import read_snapshot, snapshot_data
from reconciler.engines.volumes import make_rejection
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.settings import ResticSettings


async def import_snapshot(root: Path, settings: ResticSettings, key: Key, index: int, name: str) -> None:
    """Add the exported snapshot ``name`` to the volume ``index`` of ``key``; ``root`` is the location's directory.

    A volume that does not exist is recorded without data. Raises EngineError, with nothing changed.
    """
    files, restic = volume_files(root, key, index), Restic(settings)
    target = files.snapshot(name)
    if target.exists():
        raise make_rejection(f"volume {index} of {key} has a snapshot {name} already", Reason.SNAPSHOT_EXISTS)
    copy = await restic.find(snapshot_tag(key, index, name))
    if copy is None:
        raise make_rejection(
            f"the repository has no snapshot {name} of volume {index} of {key}; see: restic snapshots --tag reconciler",
            Reason.SNAPSHOT_NOT_FOUND,
        )
    with create_staging_directory(files, "import") as staged:
        await restic.restore(copy, staged)
        record = _verify_imported_snapshot(root, staged, name)
        check_backend(files, record)
        if files.read_record() is None and not files.path.is_dir():
            files.write_record(msgspec.structs.replace(record, state=VolumeState.DELETED))
        files.make_directory(target.parent)
        staged.rename(target)
        sync_directory(target.parent)


@contextmanager
def create_staging_directory(files: VolumeFiles, purpose: str) -> Iterator[Path]:
    """An empty directory for a snapshot that comes from elsewhere; it is removed at the end. Raises EngineError."""
    path = files.partial / purpose
    try:
        remove_tree(path)
        files.make_directory(path)
        yield path
    except OSError as error:
        raise write_error(f"the snapshot cannot be written to {path}", error) from None
    finally:
        remove_tree(path)


def _verify_imported_snapshot(root: Path, staged: Path, name: str) -> VolumeRecord:
    """The record of the volume of an imported snapshot, whose data match their checksum. Raises EngineError."""
    record, snapshot, data = read_json(staged / VOLUME, VolumeRecord), read_snapshot(staged), snapshot_data(staged)
    if record is None or snapshot is None or not data.exists():
        raise _make_damage_error(name, "is not complete")
    backend = Backends(root, BackendName.DIRECTORY).of(record)
    backend.adopt(data)
    if backend.digest(data) != snapshot.checksum:
        raise _make_damage_error(name, "does not match its checksum")
    return record


def check_backend(files: VolumeFiles, exported: VolumeRecord) -> None:
    """Raise EngineError if a volume that exists is stored in another way than the one of a snapshot."""
    record = files.read_record()
    backend = record.backend if record is not None else BackendName.DIRECTORY
    if (record is not None or files.path.is_dir()) and backend != exported.backend:
        raise make_rejection(f"the snapshot is of a volume that is stored as {exported.backend}, and this is {backend}")


def _make_damage_error(name: str, what: str) -> EngineError:
    message = f"the exported snapshot {name} {what}: check the repository with `restic check`"
    return EngineError(message, reason=Reason.SNAPSHOT_DAMAGED, retry=False)
