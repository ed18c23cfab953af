"""Clones a snapshot: it becomes one of a volume of another volume set at the same location."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import sync_directory
from reconciler.engines.host.snapshot_export.exporter import volume_files
from reconciler.engines.host.snapshot_export.importer import check_backend, create_staging_directory
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState
from reconciler.engines.host.volumes.protocol import BackendName
from reconciler.engines.host.volumes.snapshots import remove_staged, snapshot_data, verify_snapshot, write_snapshot
from reconciler.engines.host.volumes.space import Reserve, check_space
from reconciler.engines.volumes import CLONED_FROM, VolumeId, make_rejection
from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason


def clone_snapshot(root: Path, source: VolumeId, name: str, target: VolumeId, reserve: Reserve) -> None:
    """Add the snapshot ``name`` of ``source`` to the volume ``target``; ``root`` is the directory of the location.

    The clone has the same data, with a checksum that is verified, and is permanent. A volume that does not exist is
    recorded without data. Raises EngineError, with nothing changed.
    """
    own, other = (volume_files(root, volume.volumeset, volume.index) for volume in (source, target))
    record = own.read_record() or VolumeRecord(BackendName.DIRECTORY, 0.0, VolumeState.READY)
    backend = Backends(root, BackendName.DIRECTORY).of(record)
    snapshot, data = verify_snapshot(backend, own, name)
    if other.snapshot(name).exists():
        raise make_rejection(f"{target} has a snapshot {name} already", Reason.SNAPSHOT_EXISTS)
    check_backend(other, record)
    check_space(root, reserve, backend.copy_size(data), tuple)
    with create_staging_directory(other, "clone") as staged:
        try:
            backend.clone(data, snapshot_data(staged))
            if backend.digest(snapshot_data(staged)) != snapshot.checksum:
                raise EngineError(f"the copy of {name} is not equal to it", reason=Reason.SNAPSHOT_DAMAGED)
            tags = {CLONED_FROM: f"{source.volumeset}/{source.index}/{name}"}
            write_snapshot(staged, msgspec.structs.replace(snapshot, expires="", tags=tags))
            _add_snapshot(other, staged, name, msgspec.structs.replace(record, state=VolumeState.DELETED))
        finally:
            remove_staged(backend, staged)


def _add_snapshot(files: VolumeFiles, staged: Path, name: str, missing: VolumeRecord) -> None:
    """Add the complete snapshot ``staged``; a volume that does not exist gets the record ``missing``."""
    if files.read_record() is None and not files.path.is_dir():
        files.write_record(missing)
    target = files.snapshot(name)
    make_directory(target.parent)
    staged.rename(target)
    sync_directory(target.parent)
