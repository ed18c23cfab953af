"""A provisioner of volumes: it makes one for each claim that waits for it, grows it and removes it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import httpx2

from tests.kubernetes.cluster.client import Client, Object
from tests.kubernetes.cluster.pod import format_now

NAME = "test.reconciler/provisioner"
"""What a StorageClass names."""
SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshots"
SELECTED = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class Provisioner:
    """Serves the claims of all storage classes that name it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._classes: dict[str, Object] = {}
        self._claims: dict[str, Object] = {}
        self.capacity_limit = ""
        """Why no volume is made or grown now, such as ``out of disk``; empty: each one is."""

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What is to run until it is cancelled."""
        yield self._client.follow("/apis/storage.k8s.io/v1/storageclasses", self._on_class)
        yield self._client.follow("/api/v1/persistentvolumeclaims", self._on_claim)
        yield self._client.follow("/api/v1/persistentvolumes", self._on_volume)
        yield self._client.follow(SNAPSHOTS, self._on_snapshot)

    async def _on_class(self, event: str, item: Object) -> None:
        if event == "DELETED":
            self._classes.pop(item["metadata"]["name"], None)
            return
        self._classes[item["metadata"]["name"]] = item
        for claim in [*self._claims.values()]:
            await self._serve(claim)

    async def _on_claim(self, event: str, item: Object) -> None:
        if event == "DELETED":
            self._claims.pop(item["metadata"]["uid"], None)
            return
        self._claims[item["metadata"]["uid"]] = item
        await self._serve(item)

    async def _on_volume(self, event: str, item: Object) -> None:
        metadata = item["metadata"]
        own = (metadata.get("annotations") or {}).get(PROVISIONED_BY) == NAME
        released = (item.get("status") or {}).get("phase") == "Released"
        if event != "DELETED" and own and released and item["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            await self._attempt("DELETE", f"/api/v1/persistentvolumes/{metadata['name']}", None)

    async def _on_snapshot(self, event: str, item: Object) -> None:
        metadata, source = item["metadata"], item["spec"].get("source") or {}
        claims = [each for each in self._claims.values() if _names_claim(each, metadata, source)]
        if event == "DELETED" or (item.get("status") or {}).get("readyToUse") or not claims:
            return
        status = {
            "readyToUse": True,
            "creationTime": format_now(),
            "restoreSize": claims[0]["spec"]["resources"]["requests"]["storage"],
            "boundVolumeSnapshotContentName": f"snapcontent-{metadata['uid']}",
        }
        path = f"{SNAPSHOTS.rpartition('/')[0]}/namespaces/{metadata['namespace']}/volumesnapshots/{metadata['name']}"
        await self._attempt("PATCH", f"{path}/status", {"status": status})

    async def _serve(self, claim: Object) -> None:
        storage_class = self._classes.get(claim["spec"].get("storageClassName") or "")
        if storage_class is None or storage_class["provisioner"] != NAME or self.capacity_limit:
            return
        if not claim["spec"].get("volumeName"):
            waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
            if not waits or SELECTED in (claim["metadata"].get("annotations") or {}):
                await self._attempt("POST", "/api/v1/persistentvolumes", _describe_volume(claim, storage_class))
        elif (claim.get("status") or {}).get("phase") == "Bound":
            await self._grow(claim)

    async def _grow(self, claim: Object) -> None:
        size = claim["spec"]["resources"]["requests"]["storage"]
        if (claim["status"].get("capacity") or {}).get("storage") == size:
            return
        metadata = claim["metadata"]
        volume = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
        await self._attempt("PATCH", volume, {"spec": {"capacity": {"storage": size}}})
        status = {"capacity": {"storage": size}, "conditions": []}
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
        await self._attempt("PATCH", path, {"status": status})

    async def _attempt(self, method: str, path: str, body: Any) -> None:
        """Send it; what the server refuses is done already, or is tried again with the next event."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            await self._client.request(method, path, body, kind)
        except httpx2.HTTPStatusError:
            return


def _names_claim(claim: Object, metadata: Object, source: Object) -> bool:
    named: tuple[str, str] = (metadata["namespace"], source.get("persistentVolumeClaimName", ""))
    return (claim["metadata"]["namespace"], claim["metadata"]["name"]) == named


def _describe_volume(claim: Object, storage_class: Object) -> Object:
    metadata = claim["metadata"]
    return {
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {PROVISIONED_BY: NAME}},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": storage_class["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
            # Nothing is attached or mounted, so the path is not there.
            "hostPath": {"path": f"/var/test-volumes/{metadata['uid']}"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
