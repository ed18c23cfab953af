"""What a restore replaces: a snapshot of it is taken before, and its volume stays until the new one is there."""

from __future__ import annotations

from copy import deepcopy

import msgspec

from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import CLAIM, KubeObject, ObjectId
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import PREFIX, SHORT_LENGTH, format_label
from reconciler.engines.kubernetes.status.fields import read_text
from reconciler.engines.kubernetes.status.snapshots import (
    COMMAND,
    FORMER_VOLUME,
    RESTORE_UNDONE,
    LiveSnapshot,
    SnapshotPhase,
)
from reconciler.engines.kubernetes.volumes.persistent_volumes import PersistentVolumes
from reconciler.engines.kubernetes.volumes.snapshots import REPLACES, ClaimSnapshots, SnapshotRequest, SnapshotWait
from reconciler.engines.volumes import BEFORE_RESTORE
from reconciler.engines.workload.volume_upkeep import compact_time
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

RESTORE_WAIT = SnapshotWait((SnapshotPhase.READY,), 120, "the restore", "cannot be restored yet")
"""What the restore replaces can be had again then."""

QUOTA_TRIES, PAUSE = 10, 1.0
"""How often a claim is tried that a quota refuses, and the seconds between: one that is gone counts for a moment."""


class ReplacedVolumes:
    """Keeps what a restore replaces. Its methods raise EngineError, and may be repeated."""

    def __init__(self, parts: ClusterParts, snapshots: ClaimSnapshots) -> None:
        self._api, self._mirror, self._clock = parts.api, parts.mirror, parts.context.clock
        self._snapshots = snapshots
        self._volumes = PersistentVolumes(parts.api)

    async def secure(self, key: Key, target: ObjectId, chosen: LiveSnapshot, command_id: str) -> str | None:
        """Take a snapshot of the data that ``chosen`` replaces, and retain their volume; its name, "" if there is none.

        None if the command has restored them already, before a crash. If the snapshot fails, nothing has changed.
        """
        claim = await self._api.get(target)
        live = next((one for one in self._snapshots.list(key) if one.former_volume and one.command == command_id), None)
        if live is None:
            if claim is None or read_text(claim, "status", "phase") != "Bound":
                # The last restore has not ended, and what it replaces is what there is.
                return read_text(claim, "metadata", "annotations", REPLACES)
            live = await self._take(claim, chosen, command_id)
        elif claim is not None and _is_made_of(claim, chosen, live):
            return None
        await self._snapshots.await_ready(target, live, RESTORE_WAIT)
        await self._volumes.retain(live.former_volume)
        return live.former_volume

    async def _take(self, claim: KubeObject, chosen: LiveSnapshot, command_id: str) -> LiveSnapshot:
        await self.release(claim)
        name = f"pre-restore-{compact_time(format_iso_time(self._clock.now()))}"
        marks = {COMMAND: command_id, FORMER_VOLUME: read_text(claim, "spec", "volumeName")}
        request = SnapshotRequest(name, tags={BEFORE_RESTORE: chosen.snapshot.name}, marks=marks)
        return await self._snapshots.create(claim, request)

    async def try_claim(self, fresh: KubeObject, target: ObjectId) -> None:
        """Let the server try the claim that takes the place of one, under another name.

        The one that is there uses up the quota, and goes first.
        """
        name = format_label(f"{target.name}.trial", SHORT_LENGTH)
        twin = {**fresh, "metadata": {**fresh["metadata"], "name": name}}
        try:
            await self._api.apply(twin, target._replace(name=name), dry_run=True)
        except ClusterError as error:
            if error.reason is not Reason.QUOTA_EXCEEDED:
                raise

    async def create(self, claim: KubeObject, target: ObjectId) -> KubeObject:
        """Create a claim in the place of one that is gone."""
        for _ in range(QUOTA_TRIES - 1):
            try:
                return await self._api.create(claim, CLAIM, target.namespace)
            except ClusterError as error:
                if error.reason is not Reason.QUOTA_EXCEEDED:
                    raise
            await self._clock.sleep(PAUSE)
        return await self._api.create(claim, CLAIM, target.namespace)

    async def describe_former(self, claim: KubeObject, volume: str, why: str) -> KubeObject:
        """``claim``, which no snapshot fills, as it was when it had the retained ``volume``, with a note ``why``."""
        former = without_server_fields(claim)
        former["spec"].pop("dataSource", None)
        former["metadata"].setdefault("annotations", {})[RESTORE_UNDONE] = why
        # A larger one would never be bound to it.
        former["spec"]["resources"]["requests"]["storage"] = await self._volumes.read_capacity(volume)
        return former

    async def put_back(self, target: ObjectId, former: KubeObject, volume: str) -> None:
        """Give a retained volume a claim like ``former`` again, unless there is one of its name with another volume."""
        claim = await self._api.get(target)
        if claim is None:
            claim = await self.create({**former, "spec": {**former["spec"], "volumeName": volume}}, target)
        elif read_text(claim, "spec", "volumeName") != volume:
            return
        await self._volumes.hand_over(volume, target.name, claim)
        await self._volumes.give_back_policy(volume, target.namespace)

    async def release(self, claim: KubeObject) -> None:
        """Let go of the volume whose place that of ``claim`` has taken, if there is one."""
        former = read_text(claim, "metadata", "annotations", REPLACES)
        if former:
            await self._volumes.give_back_policy(former, claim["metadata"]["namespace"])
            target = ObjectId(CLAIM, claim["metadata"]["namespace"], claim["metadata"]["name"])
            answer = await self._api.patch(target, {"metadata": {"annotations": {REPLACES: None}}})
            self._mirror.put(CLAIM, msgspec.json.encode(answer))


def _is_made_of(claim: KubeObject, chosen: LiveSnapshot, safety: LiveSnapshot) -> bool:
    """Whether a claim has the data of ``chosen`` in place of those that ``safety`` was taken of."""
    made_of = read_text(claim, "spec", "dataSource", "name") == chosen.object_name
    return made_of and read_text(claim, "spec", "volumeName") != safety.former_volume


def without_server_fields(claim: KubeObject) -> KubeObject:
    """A claim as it can be created again."""
    metadata = claim["metadata"]
    spec = {name: value for name, value in claim["spec"].items() if name not in ("volumeName", "dataSourceRef")}
    return {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels") or {},
            "annotations": {
                label: text
                for label, text in (metadata.get("annotations") or {}).items()
                if label.startswith(PREFIX) and label not in (REPLACES, RESTORE_UNDONE)
            },
        },
        "spec": deepcopy(spec),
    }
