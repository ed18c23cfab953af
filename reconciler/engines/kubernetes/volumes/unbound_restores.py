"""Restores whose claim the cluster has accepted and gives no volume: after a while they are undone."""

from __future__ import annotations

import msgspec

from reconciler.engines.kubernetes.client.objects import CLAIM, EVENT, STORAGE_CLASS, KubeObject, ObjectId
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.status.events import index_events
from reconciler.engines.kubernetes.status.fields import name_of, read_seconds, read_text
from reconciler.engines.kubernetes.status.pods import ClaimFault
from reconciler.engines.kubernetes.status.snapshots import RESTORE_UNDONE
from reconciler.engines.kubernetes.status.volumes import find_claim_faults
from reconciler.engines.kubernetes.volumes.restore_undos import RestoreUndos
from reconciler.engines.kubernetes.volumes.snapshots import REPLACES, ClaimSnapshots
from reconciler.model.key import Key

FAILING_SECONDS = 600.0
"""Seconds without a volume after which a restore is undone whose claim the cluster reports as failing."""
LONGEST_SECONDS = 3600.0
"""The same where the cluster reports nothing: a driver may copy for long."""
NOTE_SECONDS = 86_400.0
"""Seconds for which the condition stays."""

_SELECTED = "volume.kubernetes.io/selected-node"


class UnboundRestores:
    """Puts what a restore replaced back into service if the claim that was to follow it gets no volume.

    The time counts from the moment when this process first sees that a volume is wanted.
    """

    def __init__(self, parts: ClusterParts, snapshots: ClaimSnapshots, undos: RestoreUndos) -> None:
        self._api, self._mirror, self._clock = parts.api, parts.mirror, parts.context.clock
        self._snapshots = snapshots
        self._undos = undos
        self._since: dict[str, float] = {}

    async def check(self, key: Key, claim: KubeObject) -> None:
        """Undo the restore that made ``claim``, which has no volume, once its time is over. Raises EngineError."""
        uid, now = claim["metadata"]["uid"], self._clock.monotonic()
        if not read_text(claim, "metadata", "annotations", REPLACES) or await self._waits_for_pod(claim):
            self._since.pop(uid, None)
            return
        waited = now - self._since.setdefault(uid, now)
        if waited < FAILING_SECONDS:
            return
        fault = await self._find_fault(claim)
        if not fault.failing and waited < LONGEST_SECONDS:
            return
        made_of = read_text(claim, "spec", "dataSource", "name")
        names = {live.object_name: live.snapshot.name for live in self._snapshots.list(key)}
        why = (
            f"the restore of {names.get(made_of, made_of)} was undone, and the volume from before is in service: "
            f"{name_of(claim)} got none within {waited / 60:.0f} min: {fault.message}"
        )
        await self._undos.begin(key, claim, why)
        del self._since[uid]

    async def forget(self, claim: KubeObject) -> None:
        """Remove the note at a claim that a restore was undone, once it is old. Raises EngineError."""
        made = read_seconds(claim, "metadata", "creationTimestamp")
        if read_text(claim, "metadata", "annotations", RESTORE_UNDONE) and self._clock.now() - made > NOTE_SECONDS:
            target = ObjectId(CLAIM, claim["metadata"]["namespace"], name_of(claim))
            answer = await self._api.patch(target, {"metadata": {"annotations": {RESTORE_UNDONE: None}}})
            self._mirror.put(CLAIM, msgspec.json.encode(answer))

    async def _waits_for_pod(self, claim: KubeObject) -> bool:
        """Whether no volume is wanted before a node is chosen for a pod: a workload may be suspended for long."""
        name = read_text(claim, "spec", "storageClassName")
        storage_class = await self._api.get(ObjectId(STORAGE_CLASS, "", name)) if name else None
        waits = read_text(storage_class, "volumeBindingMode") == "WaitForFirstConsumer"
        return waits and not read_text(claim, "metadata", "annotations", _SELECTED)

    async def _find_fault(self, claim: KubeObject) -> ClaimFault:
        metadata = claim["metadata"]
        page = await self._api.list(
            EVENT, namespace=metadata["namespace"], fields=f"involvedObject.uid={metadata['uid']}"
        )
        events: list[KubeObject] = [msgspec.json.decode(item) for item in page.items]
        return find_claim_faults([claim], index_events(events))[name_of(claim)]
