"""Asks each minute what the pods of a location use, for the history of the last day."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import DEPLOYMENT, POD, STATEFUL_SET
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.reading.replicas import read_usage
from reconciler.engines.kubernetes.status.fields import ObjectPart, read_number
from reconciler.engines.kubernetes.status.pods import PodContext
from reconciler.engines.kubernetes.status.replicas import ReplicaSource, list_rows
from reconciler.engines.reading import ReplicaRow, ReplicaState
from reconciler.engines.usage_history import FOLDER, MINUTE, UsageHistory, UsagePoint
from reconciler.errors import EngineError, RecordsError
from reconciler.model.key import Key, Kind

FIRST = 10.0
"""Seconds until the first point."""


def find_history(state: Path, location: str) -> UsageHistory:
    """The history of a location on a cluster, in the state directory ``state``."""
    return UsageHistory(state / "kubernetes" / location / FOLDER)


class ClusterUsageSampler:
    """Appends to ``history`` what the cluster measures of the pods in ``mirror``; it counts no requests."""

    def __init__(self, api: KubeApi, mirror: ClusterMirror, selector: str, clock: Clock, history: UsageHistory) -> None:
        self._api = api
        self._mirror = mirror
        self._selector = selector
        self._clock = clock
        self._history = history

    async def run(self, list_workloads: Callable[[], Iterable[Key]]) -> None:
        """Measure each minute until cancelled, and forget all but ``list_workloads``."""
        pause = FIRST
        while True:
            with contain_bugs("usage history"), contextlib.suppress(RecordsError):
                await asyncio.to_thread(self._history.retain, frozenset(list_workloads()))
            await self._clock.sleep(pause)
            with contain_bugs("usage history"), contextlib.suppress(EngineError):
                await self.measure()
            pause = MINUTE

    async def measure(self) -> None:
        """Write what runs now, if anything does. Raises EngineError."""
        pods: dict[Key, list[ObjectPart]] = {}
        for pod in list(self._mirror.of_kind(POD)):
            if pod.key is not None and pod.key.kind is Kind.WORKLOAD:
                pods.setdefault(pod.key, []).append(pod.decode())
                await asyncio.sleep(0)  # thousands of them would make others wait
        if not pods or self._mirror.explain_unknown((POD,)) is not None:
            return
        metrics = await read_usage(self._api, self._selector)
        now = self._clock.now()
        context = PodContext(now)
        points = []
        for key, parts in pods.items():
            namespace = str(parts[0]["metadata"]["namespace"])
            source = ReplicaSource(key, "", tuple(parts), tuple(metrics.get(namespace, ())))
            points.append((key, _make_point(list_rows(source, context), self._count_wanted(key, len(parts)), now)))
        await asyncio.to_thread(self._history.append, points)
        # One that was deleted meanwhile has no history.
        for key, _ in points:
            if not self._mirror.of_key(key):
                self._history.forget(key)

    def forget(self, key: Key) -> None:
        """Delete the history of a workload that is gone."""
        self._history.forget(key)

    def _count_wanted(self, key: Key, pods: int) -> int:
        """The replicas that the cluster should have; as many as there are where nothing names a number."""
        return next(map(_read_replicas, filter(_has_replicas, self._mirror.of_key(key))), pods)


def _has_replicas(item: MirroredObject) -> bool:
    return item.id.kind in (DEPLOYMENT, STATEFUL_SET)


def _read_replicas(item: MirroredObject) -> int:
    return int(read_number(item.decode(), "spec", "replicas"))


def _make_point(rows: Iterable[ReplicaRow], target: int, now: float) -> UsagePoint:
    listed = list(rows)
    cpu = [row.cpu for row in listed if row.cpu is not None]
    memory = [row.memory for row in listed if row.memory is not None]
    return UsagePoint(
        now,
        float(sum(cpu)) if cpu else None,
        float(sum(memory)) if memory else None,
        ready=sum(row.state is ReplicaState.READY for row in listed),
        wanted=target,
    )
