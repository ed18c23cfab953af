"""Copies of snapshots that are attached for a check, and removed after it; a crash leaves none."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.disk.atomic import write_failures
from reconciler.engines.host.disk.directories import make_traversable
from reconciler.engines.host.disk.ownership import Owner, make_shared
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeRecord, VolumeState
from reconciler.engines.host.volumes.protocol import BackendName
from reconciler.engines.host.volumes.snapshots import verify_snapshot
from reconciler.engines.host.volumes.space import Reserve, check_space
from reconciler.engines.host.volumes.volume import VolumeOnDisk, list_volumes, remove_leftovers
from reconciler.engines.volumes import VolumeId

SCRATCH = "verification"
"""The directory of the copies, below that of the location."""


class ScratchVolumes:
    """The copies at the location whose directory is ``root``. Every method blocks and raises EngineError."""

    def __init__(self, root: Path, reserve: Reserve) -> None:
        self._root = root
        self._top = root / SCRATCH
        self._reserve = reserve
        self._backends = Backends(self._top, BackendName.DIRECTORY)

    def fill(self, volume: VolumeId, name: str) -> None:
        """Copy the snapshot ``name``, whose checksum is verified; nothing else may change the volume meanwhile.

        Raises EngineError SnapshotNotFound, SnapshotDamaged and HostDiskLow.
        """
        source = VolumeFiles(self._root, volume.volumeset.gvc, volume.volumeset.name, str(volume.index))
        with write_failures(f"the snapshot {name} of {volume} cannot be copied"):
            record = source.read_record() or VolumeRecord(BackendName.DIRECTORY, 0.0, VolumeState.READY)
            backend = self._backends.of(record)
            snapshot, stored = verify_snapshot(backend, source, name)
            check_space(self._root, self._reserve, backend.copy_size(stored), tuple)
            copy = self._copy(volume)
            make_traversable(self._root, self._top)
            copy.files.write_record(
                VolumeRecord(record.backend, snapshot.capacity, VolumeState.READY, record.file_system)
            )
            backend.clone(stored, backend.storage(copy.files))

    def attach(self, volume: VolumeId, owner: Owner | None) -> Path:
        """Attach the copy and return its directory; it is given to ``owner``, if there is one, as a volume is."""
        with write_failures(f"the copy of {volume} cannot be attached"):
            copy = self._copy(volume)
            record = copy.ready()
            copy.files.make_reachable()
            copy.backend(record).attach(copy.files, record)
            return copy.files.path if owner is None else make_shared(copy.files.path, owner)

    def remove_all(self) -> None:
        """Remove all copies, attached ones too, if no program uses them."""
        with write_failures(f"{self._top} cannot be removed"):
            for list_volume in list_volumes(self._top):
                VolumeOnDisk(list_volume, self._top, self._backends).remove()
            remove_leftovers(self._top, self._backends)

    def _copy(self, volume: VolumeId) -> VolumeOnDisk:
        return VolumeOnDisk(volume, self._top, self._backends)
