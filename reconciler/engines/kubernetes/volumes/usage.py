"""How full the volumes of a cluster are: the kubelets measure it, and the API server passes their answers on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping

import msgspec

from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import POD
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.errors import EngineError
from reconciler.model.key import Kind

MEASURE = 60.0
"""Seconds between two questions to the kubelets, which measure about once a minute."""
REFUSED = 600.0
"""Seconds without a question after the API server has refused one."""


class _Reference(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _MeasuredVolume(msgspec.Struct, frozen=True, rename="camel"):
    used_bytes: int | None = None
    pvc_ref: _Reference | None = None


class _MeasuredPod(msgspec.Struct, frozen=True, rename="camel"):
    volume: list[_MeasuredVolume] = []


class _Summary(msgspec.Struct, frozen=True):
    pods: list[_MeasuredPod] = []


class VolumeUsage:
    """The bytes in use of mounted claims, as the kubelets reported them last."""

    def __init__(self, api: KubeApi, mirror: ClusterMirror, clock: Clock) -> None:
        self._api = api
        self._mirror = mirror
        self._clock = clock
        self._used: dict[tuple[str, str], int] = {}
        self._due = -math.inf
        self.refusal = ""
        """Why the cluster does not report it; "" if it does, or nobody has asked yet."""

    def of_claim(self, namespace: str, name: str) -> int | None:
        """The bytes in use of a claim; None if they are not known."""
        return self._used.get((namespace, name))

    async def refresh(self) -> None:
        """Ask the kubelets of all nodes with a mounted claim, if it is time to."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        nodes = sorted(self._list_nodes())
        self._due = now + MEASURE
        if not nodes:
            return
        answers = await asyncio.gather(*(self._ask(node) for node in nodes), return_exceptions=True)
        used: dict[tuple[str, str], int] = {}
        refusals = [answer for answer in answers if isinstance(answer, BaseException)]
        for answer in answers:
            if not isinstance(answer, BaseException):
                used |= answer
        for refusal in refusals:
            if not isinstance(refusal, EngineError):
                raise refusal
        # One node that does not answer hides nothing of the others, and its last figures stay.
        self._used = self._used | used if refusals else used
        self.refusal = str(refusals[0]) if len(refusals) == len(nodes) else ""
        if self.refusal:
            self._due = now + REFUSED

    def _list_nodes(self) -> Iterable[str]:
        """The nodes of pods that mount a claim."""
        for item in self._mirror.of_kind(POD):
            if item.key is not None and item.key.kind is Kind.WORKLOAD and b'"persistentVolumeClaim"' in item.content:
                node = item.decode()["spec"].get("nodeName", "")
                if node:
                    yield node

    async def _ask(self, node: str) -> Mapping[tuple[str, str], int]:
        content = await self._api.read(
            f"/api/v1/nodes/{node}/proxy/stats/summary", f"read the usage of volumes at {node}"
        )
        try:
            summary = msgspec.json.decode(content, type=_Summary)
        except msgspec.MsgspecError:
            return {}
        return {
            (volume.pvc_ref.namespace, volume.pvc_ref.name): volume.used_bytes
            for pod in summary.pods
            for volume in pod.volume
            if volume.pvc_ref is not None and volume.used_bytes is not None
        }
