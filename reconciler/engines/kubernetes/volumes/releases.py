"""Snapshots before a release on a cluster: of the volumes of a workload, before the pods of a new version start."""

from __future__ import annotations

from reconciler.engines.kubernetes.desired import AppliedResource
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import VERSION
from reconciler.engines.kubernetes.status.fields import read_text
from reconciler.engines.kubernetes.status.snapshots import SnapshotPhase, read_index
from reconciler.engines.kubernetes.volumes.snapshots import ClaimSnapshots, SnapshotRequest, SnapshotWait
from reconciler.engines.release_snapshots import list_outdated_snapshots, snapshot_before, wants_snapshots
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.volume_upkeep import compute_expiry
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import read_specification as read_volumeset
from reconciler.model.kinds.workload import mounted_volumesets, read_specification
from reconciler.times import format_iso_time

RELEASE_WAIT = SnapshotWait((SnapshotPhase.CUT, SnapshotPhase.READY), 60, "the new version", "is not taken yet")
"""What the new version writes cannot be in the snapshot then."""


class ReleaseSnapshots:
    """Takes the snapshots before new versions of workloads with the tag `reconciler/snapshot-on: new-version`."""

    def __init__(self, parts: ClusterParts, snapshots: ClaimSnapshots) -> None:
        self._context, self._api, _, self._desired, _ = parts
        self._claims = VolumeClaims(parts.context.records, parts.context.settings.org)
        self._snapshots = snapshots

    async def take_before(self, applied: AppliedResource) -> None:
        """Take what must precede ``applied``, unless its version runs already.

        Raises EngineError: then the new version must not start.
        """
        running = self._desired.find_running(applied.key)
        if running is None or not wants_snapshots(applied.body) or not self._desired.features.snapshots:
            return
        version = self._desired.version_of(applied, running)
        if running.annotations.get(VERSION) == str(version):
            return
        for name in mounted_volumesets(read_specification(applied.body)):
            key = Key(Kind.VOLUMESET, applied.key.gvc, name)
            for claim in self._snapshots.claims_of(key):
                if not claim.ending and read_text(claim.decode(), "status", "phase") == "Bound":
                    await self._take(key, claim, applied.key, version)

    async def _take(self, key: Key, claim: MirroredObject, workload: Key, version: int) -> None:
        records, clock = self._context.records, self._context.clock
        record = self._claims.record(key)
        expires = compute_expiry(read_volumeset(record.body).snapshots, clock.expiry().latest) if record else ""
        revision = records.revision(records.find_source(workload))
        snapshot = snapshot_before(workload, version, revision, format_iso_time(clock.now()), expires)
        content = claim.decode()
        index = read_index(content)
        own = [live for live in self._snapshots.list(key) if live.index == index and live.ours and not live.final]
        live = next((live for live in own if live.snapshot.name == snapshot.name), None)
        if live is None:
            live = await self._snapshots.create(content, SnapshotRequest(snapshot.name, expires, snapshot.tags))
        await self._snapshots.await_ready(claim.id, live, RELEASE_WAIT)
        tags = {live.snapshot.name: live.snapshot.tags for live in own} | {snapshot.name: snapshot.tags}
        outdated = set(list_outdated_snapshots(tags, workload.name))
        gone = [live for live in own if live.snapshot.name in outdated and live.phase is not SnapshotPhase.ENDING]
        await self._snapshots.delete(claim.id.namespace, gone)
