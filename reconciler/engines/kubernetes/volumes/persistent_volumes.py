"""PersistentVolumes that outlive their claims for a while: what moves, and what a restore replaces."""

from __future__ import annotations

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import PERSISTENT_VOLUME, KubeObject, ObjectId
from reconciler.engines.kubernetes.rendering.names import PREFIX
from reconciler.engines.kubernetes.status.fields import read_text
from reconciler.errors import EngineError
from reconciler.reasons import Reason

RECLAIM = f"{PREFIX}reclaim-policy"
"""The annotation of a PersistentVolume, while it is retained, with the policy that it had before and gets back."""


class PersistentVolumes:
    """Changes PersistentVolumes of our claims. Its methods raise EngineError, and may be repeated."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def retain(self, name: str) -> None:
        """Let a volume outlive its claim, and note what becomes of it otherwise."""
        target = ObjectId(PERSISTENT_VOLUME, "", name)
        content = await self._api.get(target)
        if content is None:
            raise EngineError(f"{target} is lost", reason=Reason.VOLUME_UNAVAILABLE)
        if read_text(content, "metadata", "annotations", RECLAIM):
            return
        policy = read_text(content, "spec", "persistentVolumeReclaimPolicy")
        change = {
            "metadata": {"annotations": {RECLAIM: policy}},
            "spec": {"persistentVolumeReclaimPolicy": "Retain"},
        }
        await self._api.patch(target, change)

    async def read_capacity(self, name: str) -> str:
        """The capacity of a volume, such as ``10Gi``."""
        target = ObjectId(PERSISTENT_VOLUME, "", name)
        content = await self._api.get(target)
        if content is None:
            raise EngineError(f"{target} is lost", reason=Reason.VOLUME_UNAVAILABLE)
        return read_text(content, "spec", "capacity", "storage")

    async def hand_over(self, name: str, former: str, claim: KubeObject) -> None:
        """Let a volume name its new claim, if it still names the claim ``former``, whatever its uid."""
        target = ObjectId(PERSISTENT_VOLUME, "", name)
        content = await self._api.get(target)
        metadata = claim["metadata"]
        there = (read_text(content, "spec", "claimRef", "namespace"), read_text(content, "spec", "claimRef", "name"))
        has_it = read_text(content, "spec", "claimRef", "uid") == metadata["uid"]
        if content is None or there != (metadata["namespace"], former) or has_it:
            return
        reference = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
        change = {
            "metadata": {"resourceVersion": content["metadata"]["resourceVersion"]},
            "spec": {"claimRef": {**reference, "resourceVersion": None}},
        }
        await self._api.patch(target, change)

    async def give_back_policy(self, name: str, namespace: str) -> None:
        """Let become of a volume what it was made for, if there is a ``name``: without a claim it may be deleted.

        It is the volume of a claim in ``namespace``: others can write the annotations that name it.
        """
        target = ObjectId(PERSISTENT_VOLUME, "", name)
        content = await self._api.get(target) if name else None
        if read_text(content, "spec", "claimRef", "namespace") != namespace:
            return
        policy = read_text(content, "metadata", "annotations", RECLAIM)
        if policy:
            change = {
                "metadata": {"annotations": {RECLAIM: None}},
                "spec": {"persistentVolumeReclaimPolicy": policy},
            }
            await self._api.patch(target, change)
