"""Moves the volumes of a volume set to another workload: new claims get the same PersistentVolumes.

The name of a claim ends with that of its workload. So another workload needs other claims, and the data stay where they
are: in the PersistentVolume, which no claim takes along while it is retained. Each step is found on the cluster again
after a crash, by the annotations of the new claim and of the volume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

import msgspec

from reconciler.engines.kubernetes.client.objects import (
    CLAIM,
    POD,
    STATEFUL_SET,
    KubeObject,
    ObjectId,
)
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import (
    PREFIX,
    WORKLOAD,
    claim_name,
    claim_template_name,
    format_label_value,
    workload_name,
)
from reconciler.engines.kubernetes.status.fields import read_field, read_items, read_text
from reconciler.engines.kubernetes.status.snapshots import read_index
from reconciler.engines.kubernetes.volumes.persistent_volumes import PersistentVolumes
from reconciler.engines.kubernetes.volumes.restores import without_server_fields
from reconciler.engines.kubernetes.volumes.snapshots import REPLACES
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

MOVED_FROM = f"{PREFIX}moved-from"
"""The annotation of a claim, until its move is done, with the name of the claim that had its volume."""
MOST_TRIES, PAUSE = 120, 0.5
"""How often a cluster is asked whether a claim has got its volume, and the seconds between two questions."""

Lock = Callable[[Key], AbstractAsyncContextManager[None]]


class VolumeMoves:
    """Moves volumes between the workloads of a location; ``lock`` is that of a volume set."""

    def __init__(self, parts: ClusterParts, lock: Lock) -> None:
        self._clock, self._api, self._mirror = parts.context.clock, parts.api, parts.mirror
        self._volumes = PersistentVolumes(parts.api)
        self._lock = lock

    async def bring_volumes(self, workload: Key, names: Iterable[str]) -> None:
        """Give ``workload`` the volumes of the volume sets ``names`` that another one has released.

        Raises EngineError, reason VolumeInUse, while something else uses one, and if both workloads have volumes.
        """
        for name in names:
            error = self._mirror.explain_unknown((CLAIM, POD, STATEFUL_SET))
            if error is not None:
                # A claim that is not seen would stay behind, and the workload would begin with an empty volume.
                raise error
            key = Key(Kind.VOLUMESET, workload.gvc, name)
            claims = self._claims_of(key)
            if any(MOVED_FROM in claim.annotations or _is_of_other(claim, key, workload) for claim in claims):
                async with self._lock(key):
                    await self._bring_set(key, workload)

    def _claims_of(self, key: Key) -> list[MirroredObject]:
        items = (item for item in self._mirror.of_key(key) if item.id.kind is CLAIM)
        return sorted(items, key=lambda item: item.id)

    async def _bring_set(self, key: Key, workload: Key) -> None:
        for claim in self._claims_of(key):
            if MOVED_FROM in claim.annotations and not _is_claim_of(claim.id.name, key, workload.name):
                await self._resume(claim)
        others = [claim for claim in self._claims_of(key) if _is_of_other(claim, key, workload)]
        moves = [(claim, self._target_of(claim, key, workload)) for claim in others]
        for claim, target in moves:
            self._check_free(claim, key)
            await self._check_target(claim, target, key)
        for claim, target in moves:
            await self._begin(claim, target, workload)
        begun = [claim.id for claim in self._claims_of(key) if MOVED_FROM in claim.annotations]
        for target in dict.fromkeys([*begun, *(target for _, target in moves)]):
            await self._finish(target)

    async def _resume(self, claim: MirroredObject) -> None:
        """End the move of a volume to a third workload, which nobody wants any more.

        While the former claim is there, it has the volume, and the new one goes. After that there is only one way.
        """
        former = claim.id._replace(name=claim.annotations[MOVED_FROM])
        there = await self._api.get(former)
        if there is None or read_text(there, "metadata", "deletionTimestamp"):
            await self._finish(claim.id)
            return
        await self._api.delete(claim.id, uid=claim.uid)
        self._mirror.drop(claim.id)
        await self._volumes.give_back_policy(read_text(there, "spec", "volumeName"), claim.id.namespace)

    def _target_of(self, claim: MirroredObject, key: Key, workload: Key) -> ObjectId:
        index = read_index(claim.decode())
        if index is None:
            message = f"{claim.id} is a volume of {key} without an index; delete it, or give it the name of a volume"
            raise EngineError(message, reason=Reason.VOLUME_IN_USE, retry=False)
        return claim.id._replace(name=claim_name(key.name, workload.name, index))

    def _check_free(self, claim: MirroredObject, key: Key) -> None:
        """Raise EngineError while a pod uses a claim, or a StatefulSet would make it anew."""
        name, namespace = claim.id.name, claim.id.namespace
        for pod in (pod for pod in self._mirror.of_kind(POD) if pod.id.namespace == namespace):
            volumes = read_items(pod.decode(), "spec", "volumes")
            if any(read_text(volume, "persistentVolumeClaim", "claimName") == name for volume in volumes):
                raise _make_in_use(f"{pod.id} uses {claim.id}, a volume of {key}: it is free when that has ended")
        for runs in (runs for runs in self._mirror.of_kind(STATEFUL_SET) if runs.id.namespace == namespace):
            templates = read_items(runs.decode(), "spec", "volumeClaimTemplates")
            mounts = any(read_text(item, "metadata", "name") == claim_template_name(key.name) for item in templates)
            if mounts and _is_claim_of(name, key, runs.id.name):
                raise _make_in_use(f"{runs.id} still has {key}: its volumes are free when it has released them")

    async def _check_target(self, claim: MirroredObject, target: ObjectId, key: Key) -> None:
        """Raise EngineError if the workload has a volume of this index already."""
        there = await self._api.get(target)
        if there is not None and read_text(there, "metadata", "deletionTimestamp"):
            raise _make_in_use(f"{target} is being deleted: its name is free after that")
        if there is not None and read_text(there, "metadata", "annotations", MOVED_FROM) != claim.id.name:
            message = (
                f"{key} has two volumes of one index: {claim.id.name} of a former workload, and {target.name}; delete "
                "the claim whose data you do not need, or give the workload another volume set"
            )
            raise EngineError(message, reason=Reason.VOLUME_IN_USE, retry=False)

    async def _begin(self, claim: MirroredObject, target: ObjectId, workload: Key) -> None:
        """Let a new claim wait for the volume, then delete the former claim."""
        content = claim.decode()
        volume = read_text(content, "spec", "volumeName")
        await self._volumes.give_back_policy(claim.annotations.get(REPLACES, ""), target.namespace)
        if volume:
            await self._volumes.retain(volume)
            if await self._api.get(target) is None:
                created = await self._api.create(
                    _describe_successor(content, target, workload), CLAIM, target.namespace
                )
                self._mirror.put(CLAIM, msgspec.json.encode(created))
        await self._api.delete(claim.id, uid=claim.uid)

    async def _finish(self, target: ObjectId) -> None:
        """Give the volume to the new claim, once the former one has ended, and its policy back."""
        for _ in range(MOST_TRIES):
            claim = await self._api.get(target)
            if claim is None:
                return  # it had no volume
            volume = read_text(claim, "spec", "volumeName")
            if read_text(claim, "status", "phase") == "Bound":
                await self._volumes.give_back_policy(volume, target.namespace)
                answer = await self._api.patch(target, {"metadata": {"annotations": {MOVED_FROM: None}}})
                self._mirror.put(CLAIM, msgspec.json.encode(answer))
                return
            former = read_text(claim, "metadata", "annotations", MOVED_FROM)
            if await self._api.get(target._replace(name=former)) is None:
                await self._volumes.hand_over(volume, former, claim)
            await self._clock.sleep(PAUSE)
        message = f"{target} does not get its volume {volume}; see what the cluster says of both"
        raise EngineError(message, reason=Reason.VOLUME_UNAVAILABLE)


def _is_claim_of(name: str, key: Key, workload: str) -> bool:
    """Whether a claim has the name of a volume of ``key`` of a workload."""
    prefix = f"{claim_template_name(key.name)}-{workload_name(workload)}-"
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal()


def _is_of_other(claim: MirroredObject, key: Key, workload: Key) -> bool:
    """Whether a claim has a volume of another workload, and will have it."""
    return (
        not claim.ending and MOVED_FROM not in claim.annotations and not _is_claim_of(claim.id.name, key, workload.name)
    )


def _describe_successor(claim: KubeObject, target: ObjectId, workload: Key) -> KubeObject:
    """The claim that gets the volume of ``claim``."""
    fresh = without_server_fields(claim)
    metadata, spec = fresh["metadata"], fresh["spec"]
    labels = {**metadata["labels"], WORKLOAD: format_label_value(workload.name)}
    annotations = {**metadata["annotations"], MOVED_FROM: metadata["name"]}
    spec = {name: value for name, value in spec.items() if name != "dataSource"}
    return {
        **fresh,
        "metadata": {**metadata, "name": target.name, "labels": labels, "annotations": annotations},
        "spec": {**spec, "volumeName": read_field(claim, "spec", "volumeName")},
    }


def _make_in_use(message: str) -> EngineError:
    return EngineError(message, reason=Reason.VOLUME_IN_USE)
