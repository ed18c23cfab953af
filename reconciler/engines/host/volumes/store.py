"""The volumes of one location: created when they are first attached, exclusive, and the same after any crash."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.disk.atomic import write_failures
from reconciler.engines.host.disk.ownership import Owner, make_shared
from reconciler.engines.host.volumes import snapshots
from reconciler.engines.host.volumes.backends import Backends
from reconciler.engines.host.volumes.final import FinalSnapshots
from reconciler.engines.host.volumes.freeze import LIMIT
from reconciler.engines.host.volumes.layout import VolumeRecord, VolumeState
from reconciler.engines.host.volumes.protocol import DeletedVolume, StoredSnapshot, StoredVolume, VolumeSpec
from reconciler.engines.host.volumes.space import RESERVE, Reserve, Saving, check_space, compute_free_space
from reconciler.engines.host.volumes.volume import VolumeOnDisk, list_volumes, remove_leftovers
from reconciler.engines.volumes import BEFORE_RESTORE, PROVEN, VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

TRIM_PAUSE = 300.0
"""Seconds between two times that images give room back because the disk is low."""


class VolumeStore:
    """The volumes below ``root``, the directory of a location. Every method blocks and may be called in any thread.

    ``setting`` is auto or a BackendName, for new volumes, and ``freeze_limit`` for how many seconds a snapshot may keep
    programs from writing. Methods raise EngineError; the volume is then as before.
    Every method can be repeated after a crash.
    """

    def __init__(
        self, root: Path, setting: str, clock: Clock, reserve: Reserve = RESERVE, freeze_limit: float = LIMIT
    ) -> None:
        self._root = root
        self._clock = clock
        self.reserve = reserve
        self._backends = Backends(root, setting, freeze_limit)
        self._final = FinalSnapshots(root)
        self._locks: defaultdict[VolumeId, Lock] = defaultdict(Lock)
        self._all = Lock()
        self._trimmed = -math.inf

    def open(self) -> tuple[str, ...]:
        """Find out what this host can do, and repair what a crash left; return sentences for the operator."""
        reports = [*self._backends.probe()]
        for volume_id in self._ids():
            try:
                with self._exclusive(volume_id, "cannot be repaired") as volume:
                    self._final.recover(volume.files)
                    reports += volume.recover()
            except EngineError as error:
                reports.append(str(error))
        with write_failures(f"{self._root} cannot be repaired"):
            reports += self._final.sweep(self._backends)
            reports += remove_leftovers(self._root, self._backends)
        return tuple(reports)

    def list(self, volumeset: Key) -> tuple[StoredVolume, ...]:
        """The volumes of a volume set, by their indexes."""
        descriptions = (self._describe(volume) for volume in self._ids() if volume.volumeset == volumeset)
        return tuple(described for described in descriptions if described is not None)

    def holders(self) -> dict[VolumeId, str]:
        """The attached volumes, and what each is attached to; a volume whose lock cannot be read is left out."""
        attachments = {}
        for volume in self._ids():
            with suppress(EngineError):
                if holder := VolumeOnDisk(volume, self._root, self._backends).holder:
                    attachments[volume] = holder
        return attachments

    def attach(self, volume: VolumeId, volume_spec: VolumeSpec, holder: str, owner: Owner) -> Path:
        """Attach a volume to ``holder`` alone and return its directory; it is created if it has no data.

        The directory is given to ``owner``. Does nothing if it is attached. Raises EngineError VolumeInUse for another
        holder.
        """
        with self._exclusive(volume, "cannot be attached") as handle:
            handle.find()  # nothing is locked if the record cannot be read
            locked = handle.lock(holder)
            try:
                handle.files.make_reachable()
                record = handle.create_missing(volume_spec)
                handle.backend(record).attach(handle.files, record)
                make_shared(handle.files.path, owner)
            except (OSError, EngineError):
                if locked:
                    handle.release()
                raise
            return handle.files.path

    def lock_again(self, volume: VolumeId, holder: str) -> bool:
        """Lock a volume again that is attached to ``holder``; return whether its lock was missing."""
        with self._exclusive(volume, "cannot be locked again") as handle:
            record = handle.find()
            return record is not None and record.state is VolumeState.READY and handle.lock(holder)

    def detach(self, volume: VolumeId, holder: str) -> None:
        """Detach a volume from ``holder``. Does nothing if it is not attached to it. Raises EngineError VolumeBusy."""
        with self._exclusive(volume, "cannot be detached") as handle:
            if handle.holder == holder:
                handle.release()

    def grow(self, volume: VolumeId, capacity: float) -> bool:
        """Expand a volume to ``capacity`` GB; return False, with nothing changed, if it must be detached for that.

        Does nothing if the volume is as large. Raises EngineError HostDiskLow.
        """
        with self._exclusive(volume, "cannot be expanded") as handle:
            record = handle.ready()
            if record.capacity >= capacity:
                return True
            backend = handle.backend(record)
            if backend.needs_detach(handle.files):
                return False
            if backend.enforced:
                self._check_space(0)
            expanded = msgspec.structs.replace(record, capacity=capacity)
            # A crash from here on makes the next `open` finish it.
            handle.files.write_record(expanded)
            try:
                backend.grow(handle.files, expanded)
            except (OSError, EngineError):
                handle.files.write_record(record)
                raise
            return True

    def take_snapshot(self, volume: VolumeId, name: str, expires: str, tags: dict[str, str]) -> StoredSnapshot:
        """Take a snapshot; ``expires`` is ISO 8601, UTC, or empty.

        Raises EngineError SnapshotExists, HostDiskLow, FreezeTimeout, and VolumeInUse for an attached volume that
        cannot be frozen.
        """
        try:
            self.prepare_snapshot(volume, name)
            return self.complete_snapshot(volume, self.copy_snapshot(volume, name, expires, tags))
        finally:
            self.discard_snapshot(volume, name)

    def prepare_snapshot(self, volume: VolumeId, name: str) -> None:
        """Copy ahead what a snapshot needs, so that ``copy_snapshot`` takes less time. Others use the volume meanwhile.

        Raises EngineError SnapshotExists, HostDiskLow, and FreezeTimeout if the volume must be detached for the copy.
        """
        with self._exclusive(volume, "has no new snapshot") as handle:
            backend = handle.backend(handle.ready())
            self._check_space(backend.copy_size(backend.storage(handle.files)))
            snapshots.begin_snapshot(backend, handle.files, name)
        with write_failures(f"{volume} has no new snapshot"):
            snapshots.prepare_snapshot(backend, handle.files, name)

    def copy_snapshot(self, volume: VolumeId, name: str, expires: str, tags: dict[str, str]) -> StoredSnapshot:
        """Copy the data as they are now, after ``prepare_snapshot``; returns the snapshot, which is not complete.

        Raises EngineError FreezeTimeout, and VolumeInUse for an attached volume that cannot be frozen.
        """
        with self._exclusive(volume, "has no new snapshot") as handle:
            record = handle.ready()
            backend = handle.backend(record)
            if handle.holder and not backend.freezes:
                raise EngineError(
                    f"{volume} is a directory, which cannot be frozen while {handle.holder} uses it: stop that first",
                    reason=Reason.VOLUME_IN_USE,
                )
            snapshots.copy_snapshot(backend, handle.files, name)
            return StoredSnapshot(name, format_iso_time(self._clock.now()), record.capacity, 0, "", expires, tags)

    def complete_snapshot(self, volume: VolumeId, planned: StoredSnapshot) -> StoredSnapshot:
        """Make a snapshot of the data that ``copy_snapshot`` copied; replicas may change the volume already."""
        with write_failures(f"{volume} has no new snapshot"):
            handle = VolumeOnDisk(volume, self._root, self._backends)
            return snapshots.complete_snapshot(handle.backend(handle.record()), handle.files, planned)

    def discard_snapshot(self, volume: VolumeId, name: str) -> None:
        """Remove what there is of a snapshot that is not complete; the next start of the daemon does what fails now."""
        handle = VolumeOnDisk(volume, self._root, self._backends)
        with suppress(OSError, EngineError):
            if (record := handle.find()) is not None:
                snapshots.discard_snapshot(handle.backend(record), handle.files, name)

    def is_intact(self, volume: VolumeId, name: str) -> bool:
        """Whether the data of a snapshot match its checksum; all of them are read. Raises EngineError for a failure."""
        with self._exclusive(volume, "has a snapshot that cannot be verified") as handle:
            try:
                snapshots.verify_snapshot(handle.backend(handle.record()), handle.files, name)
            except EngineError as error:
                if error.reason != Reason.SNAPSHOT_DAMAGED:
                    raise
                return False
            return True

    def delete_snapshot(self, volume: VolumeId, name: str) -> None:
        """Delete a snapshot. Raises EngineError SnapshotNotFound."""
        with self._exclusive(volume, "still has the snapshot") as handle:
            snapshots.delete_snapshot(handle.backend(handle.record()), handle.files, name)

    def restore(self, volume: VolumeId, name: str, keep_as: str) -> None:
        """Replace the data of a detached volume with those of a snapshot; a snapshot ``keep_as`` keeps the former ones.

        Raises EngineError VolumeInUse, SnapshotNotFound, SnapshotDamaged and HostDiskLow.
        """
        with self._exclusive(volume, "cannot be restored") as handle:
            handle.check_detached()
            record = handle.record()
            backend = handle.backend(record)
            snapshot, data = snapshots.verify_snapshot(backend, handle.files, name)
            self._check_space(backend.copy_size(data))
            if record.state is VolumeState.READY:
                self._keep(handle, record, snapshot, keep_as)
            backend.replace(handle.files, data)
            capacity = max(record.capacity, snapshot.capacity)
            handle.files.write_record(msgspec.structs.replace(record, state=VolumeState.READY, capacity=capacity))

    def clear(self, volume: VolumeId) -> None:
        """Delete the data of a detached volume; its record and snapshots stay, and a later attach creates it anew."""
        with self._exclusive(volume, "cannot be deleted") as handle:
            handle.check_detached()
            record = handle.record()
            handle.files.write_record(msgspec.structs.replace(record, state=VolumeState.DELETED))
            handle.remove_data(record)

    def drop(self, volumeset: Key, keep_final_snapshot: bool) -> None:
        """Delete a volume set, its volumes and snapshots; ``keep_final_snapshot`` keeps the data of each volume.

        Does nothing if there is none. Raises EngineError VolumeInUse, with nothing changed, if one is attached.
        """
        ids = [volume for volume in self._ids() if volume.volumeset == volumeset]
        for volume_id in ids:
            VolumeOnDisk(volume_id, self._root, self._backends).check_detached()
        for volume_id in ids:
            with self._exclusive(volume_id, "cannot be deleted") as handle:
                handle.check_detached()
                record = handle.find()
                if keep_final_snapshot and record is not None and record.state is VolumeState.READY:
                    self._final.keep(handle.backend(record), handle.files, record, self._clock.now())
                handle.remove()

    def usage(self, volume: VolumeId) -> int:
        """Bytes that the files in a volume take; 0 if it has no data."""
        with self._exclusive(volume, "cannot be measured") as handle:
            record = handle.find()
            if record is None or record.state is not VolumeState.READY:
                return 0
            return handle.backend(record).usage(handle.files)

    def trim(self, volume: VolumeId) -> None:
        """Give blocks of deleted files back to the disk. Does nothing for a detached volume."""
        with self._exclusive(volume, "cannot be trimmed") as handle:
            record = handle.find()
            if record is not None and record.state is VolumeState.READY:
                handle.backend(record).trim(handle.files)

    def list_deleted(self) -> tuple[DeletedVolume, ...]:
        """The final snapshots of volumes whose volume sets are deleted."""
        return tuple(self._final.list())

    def delete_final_snapshot(self, volume: DeletedVolume) -> None:
        """Delete a final snapshot. Does nothing if there is none."""
        with write_failures(f"the final snapshot {volume.name} of {volume.volumeset} cannot be deleted"):
            record = self._final.record(volume)
            if record is not None:
                self._final.delete(self._backends.of(record), volume)

    def _ids(self) -> Iterator[VolumeId]:
        return list_volumes(self._root)

    def _describe(self, volume: VolumeId) -> StoredVolume | None:
        """A volume as it is. While it is being attached or detached it is locked without a mount, and not lost."""
        with self._all:
            lock = self._locks[volume]
        free = lock.acquire(blocking=False)
        try:
            stored_volume = VolumeOnDisk(volume, self._root, self._backends).describe()
        finally:
            if free:
                lock.release()
        return stored_volume if free or stored_volume is None else msgspec.structs.replace(stored_volume, lost=False)

    @contextmanager
    def _exclusive(self, volume: VolumeId, failure: str) -> Iterator[VolumeOnDisk]:
        """A volume for one operation at a time; an OSError becomes an EngineError."""
        with self._all:
            lock = self._locks[volume]
        with lock, write_failures(f"{volume} {failure}"):
            yield VolumeOnDisk(volume, self._root, self._backends)

    def _keep(self, volume: VolumeOnDisk, record: VolumeRecord, replacement: StoredSnapshot, keep_as: str) -> None:
        """Snapshot the data before they are replaced, unless an interrupted restore did so and they are the same."""
        name, backend = keep_as, volume.backend(record)
        for number in count(2):
            former = snapshots.read_snapshot(volume.files.snapshot(name))
            if former is None:
                self._check_space(backend.copy_size(backend.storage(volume.files)))
                tags = {BEFORE_RESTORE: replacement.name}
                planned = StoredSnapshot(name, format_iso_time(self._clock.now()), record.capacity, 0, "", tags=tags)
                snapshots.take_snapshot(backend, volume.files, planned)
                return
            if backend.digest(backend.storage(volume.files)) in (former.checksum, replacement.checksum):
                return
            name = f"{keep_as}-{number}"

    def set_proven(self, volume: VolumeId, name: str) -> None:
        """Record that a snapshot was proven now. Raises EngineError SnapshotNotFound."""
        with self._exclusive(volume, "cannot record the proof of a snapshot") as handle:
            snapshot = snapshots.find_snapshot(handle.files, name)
            tags = {**snapshot.tags, PROVEN: format_iso_time(self._clock.now())}
            snapshots.write_snapshot(handle.files.snapshot(name), msgspec.structs.replace(snapshot, tags=tags))

    def is_low(self) -> bool:
        """Whether the disk has less free than the reserve. Raises EngineError."""
        with write_failures(f"the disk of {self._root} cannot be measured"):
            return compute_free_space(self._root, self.reserve) < 0

    def disk_size(self) -> int:
        """The bytes of the disk of the volumes. Raises EngineError."""
        with write_failures(f"the disk of {self._root} cannot be measured"):
            statvfs_result = os.statvfs(self._root)
            return statvfs_result.f_blocks * statvfs_result.f_frsize

    def _check_space(self, needed: int) -> None:
        """Raise EngineError unless there is room, after images gave back what their file systems do not use."""
        now = self._clock.monotonic()
        if compute_free_space(self._root, self.reserve) < needed and now - self._trimmed >= TRIM_PAUSE:
            self._trimmed = now
            for volume_id in self._ids():
                volume = VolumeOnDisk(volume_id, self._root, self._backends)
                with suppress(OSError, EngineError):
                    if volume.holder and (record := volume.find()) is not None:
                        volume.backend(record).trim(volume.files)
        check_space(self._root, self.reserve, needed, self._savings)

    def _savings(self) -> Iterator[Saving]:
        for volume in self._ids():
            for snapshot in snapshots.list_snapshots(VolumeOnDisk(volume, self._root, self._backends).files).snapshots:
                yield Saving(snapshot.size, f"deleting the snapshot {snapshot.name} of {volume}")
        for final in self.list_deleted():
            yield Saving(final.snapshot.size, f"deleting the final snapshot {final.name} of {final.volumeset}")
