"""One volume on the disk: its record, its lock, its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.directories import remove_empty
from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.volumes import snapshots
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.layout import (
    VOLUMES,
    LastCommand,
    VolumeFiles,
    VolumeRecord,
    VolumeState,
    read_json,
)
from reconciler.engines.host.volumes.protocol import BackendName, StoredVolume, VolumeBackend, VolumeSpec
from reconciler.engines.volumes import VolumeId, make_rejection
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

_REMOVED = ".removed"


class VolumeOnDisk:
    """A volume that may or may not exist. Methods raise OSError and EngineError; the caller excludes other threads."""

    def __init__(self, volume: VolumeId, root: Path, backends: Backends) -> None:
        self.id = volume
        self.files = VolumeFiles(root, volume.volumeset.gvc, volume.volumeset.name, str(volume.index))
        self._top = root / VOLUMES
        self._backends = backends

    @property
    def holder(self) -> str:
        """What the volume is attached to; empty if it is detached."""
        lock = self.files.read_lock()
        return lock.holder if lock is not None else ""

    def backend(self, record: VolumeRecord) -> VolumeBackend:
        """The backend that stores the volume."""
        return self._backends.of(record)

    def find(self) -> VolumeRecord | None:
        """The record; a volume without one is a directory from before there were records, or does not exist."""
        record = self.files.read_record()
        if record is None and self.files.path.is_dir():
            return VolumeRecord(BackendName.DIRECTORY, 0, VolumeState.READY)
        return record

    def record(self) -> VolumeRecord:
        """The record of a volume that exists. Raises EngineError VolumeNotFound."""
        record = self.find()
        if record is None or record.state is VolumeState.CREATING:
            raise make_rejection(f"there is no {self.id}", Reason.VOLUME_NOT_FOUND)
        return record

    def ready(self) -> VolumeRecord:
        """The record of a volume with data. Raises EngineError for any other."""
        record = self.record()
        if record.state is VolumeState.DELETED:
            raise make_rejection(f"the data of {self.id} are deleted: restore a snapshot, or let a replica use it")
        return record

    def describe(self) -> StoredVolume | None:
        """The volume as users see it; None if it does not exist. One that cannot be read affects no other."""
        try:
            return self._describe()
        except EngineError as error:
            return StoredVolume(self.id.index, "", "", 0, VolumeState.READY, damage=str(error))

    def _describe(self) -> StoredVolume | None:
        record = self.find()
        if record is None:
            return None
        backend, unfinished = self.backend(record), self.find_unfinished()
        listing, holder = snapshots.list_snapshots(self.files), self.holder
        lost = bool(holder) and (not backend.is_attached(self.files) or backend.has_failed(self.files))
        return StoredVolume(
            self.id.index,
            record.backend,
            record.file_system,
            record.capacity,
            record.state,
            listing.snapshots,
            holder,
            backend.enforced,
            backend.freezes,
            lost,
            unfinished,
            backend.grows_detached,
            damaged_snapshots=listing.damages,
        )

    def lock(self, holder: str) -> bool:
        """Lock the volume for ``holder``; return False if it was.

        Raises EngineError VolumeInUse for another holder, and while an unfinished command replaces the data.
        """
        former = self.holder
        if former and former != holder:
            raise EngineError(
                f"{self.id} is attached to {former}: it is free when that has ended", reason=Reason.VOLUME_IN_USE
            )
        if former:
            return False
        if (command := self.find_unfinished()) is not None:
            raise EngineError(
                f"{self.id} has an unfinished {command.replaces}, which replaces its data: it is free when that is "
                "repeated or given up",
                reason=Reason.VOLUME_IN_USE,
            )
        try:
            self.files.write_lock(holder)
        except OSError:
            remove_empty(self.files.folder, self._top)
            raise
        return True

    def find_unfinished(self) -> LastCommand | None:
        """The command that replaces the data and is not done; None if there is none."""
        last = self.files.read_command()
        return last if last is not None and last.replaces else None

    def check_detached(self) -> None:
        """Raise EngineError VolumeInUse if the volume is attached."""
        if self.holder:
            raise EngineError(f"{self.id} is attached to {self.holder}: stop that first", reason=Reason.VOLUME_IN_USE)

    def release(self) -> None:
        """Detach and unlock the volume."""
        record = self.find()
        if record is not None:
            self.backend(record).detach(self.files)
        self.files.remove_lock()
        if record is None:
            remove_empty(self.files.folder, self._top)

    def create_missing(self, volume_spec: VolumeSpec) -> VolumeRecord:
        """The record of the volume, which is created if it has no data."""
        record = self.find()
        if record is not None and record.state is VolumeState.READY:
            return record if record.capacity else self._adopt(record, volume_spec)
        recreated = record is not None and (record.state is VolumeState.DELETED or record.recreated)
        if record is not None and recreated:  # its metadata remain
            name, capacity = record.backend, max(record.capacity, volume_spec.capacity)
        else:
            name, capacity = self._backends.choose(volume_spec), volume_spec.capacity
        backend = self._backends.find_backend(name)
        file_system = backend.file_system(volume_spec.file_system)
        creating = VolumeRecord(name, capacity, VolumeState.CREATING, file_system, recreated)
        ready = VolumeRecord(name, capacity, VolumeState.READY, file_system)
        try:
            self.files.write_record(creating)
            backend.remove(backend.storage(self.files))
            backend.create(self.files, creating)
            self.files.write_record(ready)
        except (OSError, EngineError):
            self._undo_creation(creating)
            raise
        return ready

    def _adopt(self, record: VolumeRecord, volume_spec: VolumeSpec) -> VolumeRecord:
        """Write the record of a directory from before there were records."""
        complete = msgspec.structs.replace(record, capacity=volume_spec.capacity)
        self.files.write_record(complete)
        return complete

    def _undo_creation(self, record: VolumeRecord) -> None:
        self.remove_data(record)
        if record.recreated:
            self.files.write_record(msgspec.structs.replace(record, state=VolumeState.DELETED, recreated=False))
        else:
            self.remove()

    def remove_data(self, record: VolumeRecord) -> None:
        """Remove the data of the detached volume, but neither its record nor its snapshots."""
        backend = self.backend(record)
        backend.detach(self.files)
        backend.remove(backend.storage(self.files))
        remove_tree(self.files.path)  # the mount point of an image

    def remove(self) -> None:
        """Remove the detached volume with all its snapshots."""
        record = self.find()
        if record is not None:
            self.files.write_record(msgspec.structs.replace(record, state=VolumeState.DELETED))
            self.remove_data(record)
        # No half of the folder may pass for a volume.
        removed = self.files.folder.with_name(f".{self.files.folder.name}{_REMOVED}")
        with suppress(FileNotFoundError):
            self.files.folder.rename(removed)
        remove_folder(removed, self._backends)
        remove_empty(self.files.path.parent, self._top)

    def recover(self) -> tuple[str, ...]:
        """Finish or undo what a crash interrupted; return what an operator must know."""
        self.files.make_reachable()  # somebody may have closed these directories
        for path in self.files.leftovers():
            path.unlink(missing_ok=True)
        record = self.find()
        if record is None:
            self.files.remove_lock()
            remove_empty(self.files.folder, self._top)
            return ()
        backend = self.backend(record)
        for part in list_paths(self.files.folder, "partial/*"):
            if part.is_dir():
                snapshots.remove_staged(backend, part)
            backend.remove(part)
        for folder in list_paths(self.files.folder, "snapshots/*"):
            with suppress(EngineError):  # one that cannot be read stays as it is
                if snapshots.read_snapshot(folder) is None:
                    snapshots.remove_staged(backend, folder)
        if not self.holder:
            self.files.remove_lock()  # of a former boot
        reports = backend.recover(self.files, record, locked=bool(self.holder))
        if record.state is not VolumeState.READY or not backend.is_in_use(self.files):
            self.files.remove_lock()  # the crash interrupted an attach or a detach
        if record.state is VolumeState.CREATING:
            self._undo_creation(record)
        elif record.state is VolumeState.DELETED:
            self.remove_data(record)
        return reports


def list_volumes(root: Path) -> Iterator[VolumeId]:
    """All volumes on the disk of the location whose directory is ``root``. Raises OSError."""
    volume_ids = {
        path.relative_to(root / VOLUMES).with_suffix("").parts for path in list_paths(root / VOLUMES, "*/*/*")
    }
    for gvc, volumeset, index in sorted(volume_ids):
        if index.isdecimal():
            yield VolumeId(Key(Kind.VOLUMESET, gvc, volumeset), int(index))


def remove_folder(folder: Path, backends: Backends) -> None:
    """Remove the folder of a removed volume. Raises OSError and EngineError."""
    record = read_json(folder / "volume.json", VolumeRecord)
    if record is not None:
        for path in list_paths(folder, "[sp]*/*"):
            snapshots.remove_staged(backends.of(record), path)
    remove_tree(folder)


def remove_leftovers(root: Path, backends: Backends) -> tuple[str, ...]:
    """Remove what interrupted removals left: folders, and empty directories. Raises OSError.

    Returns what an operator must know about those that cannot be removed.
    """
    reports = []
    for folder in list_paths(root / VOLUMES, f"*/*/.*{_REMOVED}"):
        try:
            remove_folder(folder, backends)
        except EngineError as error:
            reports.append(str(error))
    for pattern in ("*/*", "*"):
        for path in list_paths(root / VOLUMES, pattern):
            remove_empty(path, root / VOLUMES)
    with suppress(OSError):
        (root / VOLUMES).rmdir()
    return tuple(reports)
