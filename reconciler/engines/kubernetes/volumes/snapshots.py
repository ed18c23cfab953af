"""VolumeSnapshots of claims: makes them, finds them and deletes them, and never touches those of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import CLAIM, VOLUME_SNAPSHOT, KubeObject, ObjectId
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.rendering.names import PREFIX, snapshot_name
from reconciler.engines.kubernetes.status.snapshots import (
    RESTORE_UNDONE,
    SNAPSHOT_EXPIRES,
    SNAPSHOT_NAME,
    SNAPSHOT_TAGS,
    LiveSnapshot,
    SnapshotPhase,
    read_snapshot,
)
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

SCHEDULE = f"{PREFIX}schedule"
"""The annotation of a claim with how far its schedule is: ``MINUTE SCHEDULE``, the minute since the epoch."""
REPLACES = f"{PREFIX}replaces"
"""The annotation of a restored claim, until it is bound, with the PersistentVolume that is retained until then."""

PAUSE = 1.0
"""Seconds between two questions whether a snapshot is taken."""
_HINT = "see whether a snapshot controller runs, and whether a VolumeSnapshotClass has the driver of the volume"

_encode = msgspec.json.Encoder().encode


class SnapshotRequest(msgspec.Struct, frozen=True):
    """A snapshot to take; ``marks`` are further annotations of its object."""

    name: str
    expires: str = ""
    tags: Mapping[str, str] = {}
    marks: Mapping[str, str] = {}


class SnapshotWait(NamedTuple):
    """What waits for a snapshot, until it is in one of ``phases``: the cluster is asked ``tries`` times.

    ``purpose`` is what it must precede, ``lacks`` what is said of one that is not there in time.
    """

    phases: Collection[SnapshotPhase]
    tries: int
    purpose: str
    lacks: str


class ClaimSnapshots:
    """The snapshots of the volume sets of a location."""

    def __init__(self, api: KubeApi, mirror: ClusterMirror, clock: Clock) -> None:
        self._clock = clock
        self._api = api
        self._mirror = mirror

    def claims_of(self, key: Key) -> list[MirroredObject]:
        """The claims of a volume set, by name."""
        items = (item for item in self._mirror.of_key(key) if item.id.kind is CLAIM)
        return sorted(items, key=lambda item: item.id)

    def list(self, key: Key) -> list[LiveSnapshot]:
        """The snapshots of a volume set, with the final ones of its deleted volumes."""
        items = (item for item in self._mirror.of_key(key) if item.id.kind is VOLUME_SNAPSHOT)
        return [read_snapshot(item.decode()) for item in items]

    async def create(self, claim: KubeObject, request: SnapshotRequest) -> LiveSnapshot:
        """Ask the cluster for a snapshot; one that is there already is returned. Raises EngineError.

        If others made an object of its name, the reason is ForeignObject.
        """
        item = _build_snapshot(claim, request)
        target = ObjectId(VOLUME_SNAPSHOT, item["metadata"]["namespace"], item["metadata"]["name"])
        try:
            created = await self._api.create(item, VOLUME_SNAPSHOT, target.namespace)
        except ClusterError as error:
            there = await self._api.get(target) if error.code == 409 else None
            if there is None:
                raise
            created = there
        self._mirror.put(VOLUME_SNAPSHOT, _encode(created))
        live = read_snapshot(created)
        if not live.ours or live.snapshot.name != request.name:
            message = f"{target} exists, and others made it; delete or rename it"
            raise EngineError(message, reason=Reason.FOREIGN_OBJECT)
        return live

    async def await_ready(self, claim: ObjectId, live: LiveSnapshot, wait: SnapshotWait) -> None:
        """Return once the snapshot ``live`` of ``claim`` is as ``wait`` has it. Raises EngineError if it fails."""
        target = ObjectId(VOLUME_SNAPSHOT, claim.namespace, live.object_name)
        subject = f"the snapshot {live.snapshot.name} of {claim.name}, which must precede {wait.purpose},"
        for _ in range(wait.tries):
            if live.phase in wait.phases:
                return
            if live.phase is SnapshotPhase.FAILED:
                raise EngineError(f"{subject} failed: {live.message}", reason=Reason.SNAPSHOT_FAILED)
            await self._clock.sleep(PAUSE)
            there = await self._api.get(target)
            if there is None:
                raise EngineError(f"{subject} is gone", reason=Reason.SNAPSHOT_FAILED)
            live = read_snapshot(there)
        raise EngineError(f"{subject} {wait.lacks}: {_HINT}", reason=Reason.SNAPSHOT_FAILED)

    async def delete(self, namespace: str, gone: Sequence[LiveSnapshot]) -> None:
        """Delete snapshots of ours. Raises EngineError."""
        for live in gone:
            await self._api.delete(ObjectId(VOLUME_SNAPSHOT, namespace, live.object_name), uid=live.uid)


def _build_snapshot(claim: KubeObject, request: SnapshotRequest) -> KubeObject:
    """The VolumeSnapshot of a claim, with its labels, and with its annotations but for what is of the claim alone."""
    metadata = claim["metadata"]
    own = {
        label: text
        for label, text in (metadata.get("annotations") or {}).items()
        if label.startswith(PREFIX) and label not in (SCHEDULE, REPLACES, RESTORE_UNDONE)
    }
    annotations = {
        **own,
        SNAPSHOT_NAME: request.name,
        SNAPSHOT_EXPIRES: request.expires,
        SNAPSHOT_TAGS: _encode(dict(request.tags)).decode(),
        **request.marks,
    }
    return {
        "apiVersion": VOLUME_SNAPSHOT.api_version,
        "kind": VOLUME_SNAPSHOT.kind,
        "metadata": {
            "name": snapshot_name(metadata["name"], request.name),
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels") or {},
            "annotations": annotations,
        },
        "spec": {"source": {"persistentVolumeClaimName": metadata["name"]}},
    }
