"""Snapshots before a release: of the volumes of a workload, before the first replica of a new version gets its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.disk.atomic import write_durable, write_error
from reconciler.engines.host.volumes.layout import VolumeFiles, VolumeState, read_if_readable
from reconciler.engines.host.volumes.protocol import StoredVolume
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.release_snapshots import list_outdated_snapshots, snapshot_before, wants_snapshots, workload_of
from reconciler.engines.volumes import Snapshot, VolumeId
from reconciler.engines.workload.volume_upkeep import retention_seconds
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Specification
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

_FILE = "release.json"


class LastRelease(msgspec.Struct, frozen=True):
    """The version that a volume was last attached to; beside the volume, so that it outlives the daemon."""

    workload: str
    version: int


class Releases:
    """Takes the snapshots before new versions of workloads with the tag `reconciler/snapshot-on: new-version`.

    The volumes are those of ``store``, below ``root``.
    """

    def __init__(self, root: Path, store: VolumeStore, clock: Clock) -> None:
        self.root = root
        self.store = store
        self._clock = clock
        self._revisions: dict[Key, str] = {}
        self._stopping: set[VolumeId] = set()

    def read(self, workload: Key, body: bytes, revision: str) -> None:
        """Read the tag of a workload, whose newest version came with ``revision``."""
        if wants_snapshots(body):
            self._revisions[workload] = revision
        else:
            self._revisions.pop(workload, None)

    def forget(self, workload: Key) -> None:
        """Forget a deleted workload."""
        self._revisions.pop(workload, None)

    async def prepare(self, volume: VolumeId, holder: str, version: int, spec: Specification) -> None:
        """Take what must precede the attachment of ``volume`` to a replica of ``version``.

        All volumes of the set are snapshotted that need no stop for it; one that does is when its own replica starts.
        Raises EngineError: then the replica must not start.
        """
        await asyncio.to_thread(self._prepare, volume, holder, version, spec)

    def _prepare(self, volume: VolumeId, holder: str, version: int, spec: Specification) -> None:
        workload, _ = parse_holder(holder)
        release = LastRelease(str(workload), version)
        if self._last(volume) == release:
            return
        stored = {
            VolumeId(volume.volumeset, stored_volume.index): stored_volume
            for stored_volume in self.store.list(volume.volumeset)
        }
        own = stored.get(volume)
        if own is not None and (own.damage or own.unfinished or own.holder not in ("", holder)):
            return  # to attach it fails, with the reason
        if workload in self._revisions and (own is None or not own.holder):
            now = self._clock.now()
            lasts = retention_seconds(spec.snapshots.retention_duration)
            expires = format_iso_time(self._clock.expiry().latest + lasts) if lasts is not None else ""
            snapshot = snapshot_before(workload, version, self._revisions[workload], format_iso_time(now), expires)
            for volume_id, candidate in stored.items():
                if self._needs(volume_id, candidate, release, snapshot.name) and (
                    volume_id == volume or self._is_free(volume_id, candidate)
                ):
                    self._take(volume_id, candidate, snapshot)
        self._write(volume, release)

    def _needs(self, volume: VolumeId, stored_volume: StoredVolume, release: LastRelease, name: str) -> bool:
        """Whether a volume has data of another version, and no snapshot of them."""
        taken = any(snapshot.name == name for snapshot in stored_volume.snapshots)
        return (
            stored_volume.state is VolumeState.READY
            and not (taken or stored_volume.damage)
            and self._last(volume) != release
        )

    def _take(self, volume: VolumeId, stored_volume: StoredVolume, snapshot: Snapshot) -> None:
        """Take a snapshot, then delete those that are outdated by it. Raises EngineError."""
        try:
            self.store.take_snapshot(volume, snapshot.name, snapshot.expires, snapshot.tags)
        except EngineError as error:
            if error.reason == Reason.FREEZE_TIMEOUT:
                self._stopping.add(volume)  # it is taken when its own replica starts
                return
            message = f"the snapshot {snapshot.name} of {volume}, which must precede the new version, failed: {error}"
            raise EngineError(message, reason=Reason.from_stored(str(error.reason)), retry=error.retry) from None
        snapshot_tags = {snapshot.name: snapshot.tags for snapshot in stored_volume.snapshots}
        workload = workload_of(snapshot, volume.volumeset)
        for name in list_outdated_snapshots(snapshot_tags, workload.name if workload else ""):
            self.store.delete_snapshot(volume, name)

    def _is_free(self, volume: VolumeId, stored_volume: StoredVolume) -> bool:
        """Whether a snapshot needs no stop of a replica."""
        return not stored_volume.holder or (stored_volume.freezes and volume not in self._stopping)

    def _last(self, volume: VolumeId) -> LastRelease | None:
        return read_if_readable(self._files(volume).folder / _FILE, LastRelease)

    def _write(self, volume: VolumeId, release: LastRelease) -> None:
        files = self._files(volume)
        try:
            files.make_directory(files.folder)
            write_durable(files.folder / _FILE, msgspec.json.encode(release))
        except OSError as error:
            raise write_error(f"the version of {volume} cannot be recorded", error) from None

    def _files(self, volume: VolumeId) -> VolumeFiles:
        return VolumeFiles(self.root, volume.volumeset.gvc, volume.volumeset.name, str(volume.index))
