"""How full the volumes of a cluster are: the kubelets measure it, and the API server passes their answers on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import POD
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.status.fields import read_items, read_text
from reconciler.errors import EngineError
from reconciler.model.key import Kind

MEASURE = 60.0
"""Seconds between two questions to the kubelets, which measure about once a minute."""
REFUSED = 600.0
"""Seconds without a question after the API server has refused one."""


Claim = tuple[str, str]
"""Its namespace and its name."""
TOO_MANY = 429


class _Silence(NamedTuple):
    """A kubelet that does not answer: why, and since when of the monotonic clock."""

    error: EngineError
    since: float


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
        self._used: dict[Claim, int] = {}
        self._nodes: dict[Claim, str] = {}
        self._silent: dict[str, _Silence] = {}
        self._due = -math.inf
        self.refusal = ""
        """Why the cluster lets nobody ask the kubelets; "" if it does, or nobody has asked yet."""

    def of_claim(self, namespace: str, name: str) -> int | None:
        """The bytes in use of a claim; None if they are not known."""
        return self._used.get((namespace, name))

    def explain_silence(self, namespace: str, name: str) -> EngineError | None:
        """Why the kubelet of a claim has answered no question of the last minute; None if it has."""
        silence = self._silent.get(self._nodes.get((namespace, name), ""))
        if silence is None or self._clock.monotonic() - silence.since < MEASURE:
            return None
        return silence.error

    async def refresh(self) -> None:
        """Ask the kubelets of all nodes with a mounted claim, if it is time to."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._nodes = dict(self._list_mounts())
        nodes = sorted(set(self._nodes.values()))
        self._due = now + MEASURE
        if not nodes:
            return
        answers = await asyncio.gather(*(self._ask(node) for node in nodes), return_exceptions=True)
        used: dict[Claim, int] = {}
        errors: dict[str, EngineError] = {}
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, EngineError):
                errors[node] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                used |= answer
        # One node that does not answer hides nothing of the others, and its last figures stay.
        self._used = self._used | used if errors else used
        denials = {node: str(error) for node, error in errors.items() if _is_denial(error)}
        self.refusal = next(iter(denials.values())) if len(denials) == len(nodes) else ""
        if self.refusal:
            self._due = now + REFUSED
        self._silent = {
            node: _Silence(error, self._silent[node].since if node in self._silent else now)
            for node, error in errors.items()
            if node not in denials
        }

    def _list_mounts(self) -> Iterable[tuple[Claim, str]]:
        """The claims that pods mount, with the nodes of these."""
        for item in self._mirror.of_kind(POD):
            if item.key is not None and item.key.kind is Kind.WORKLOAD and b'"persistentVolumeClaim"' in item.content:
                pod = item.decode()
                node, volumes = read_text(pod, "spec", "nodeName"), read_items(pod, "spec", "volumes")
                names = (read_text(volume, "persistentVolumeClaim", "claimName") for volume in volumes)
                yield from (((item.id.namespace, name), node) for name in names if name and node)

    async def _ask(self, node: str) -> Mapping[Claim, int]:
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


def _is_denial(error: EngineError) -> bool:
    """Whether the cluster does not let the daemon ask, so that it is no trouble of one node."""
    return isinstance(error, ClusterError) and 400 <= error.code < 500 and error.code != TOO_MANY
