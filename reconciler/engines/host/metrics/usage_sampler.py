"""Measures each minute what the workloads of a location use, for the history of the last day."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.metrics import StatsSource
from reconciler.engines.host.dataplane.protocol import RequestCounts
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.engines.usage_history import MINUTE, UsageHistory, UsagePoint
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key

FIRST = 10.0
"""Seconds until the first point, so that who begins sees one soon."""
_SWEEP = 60
"""Points between two sweeps."""

_NO_REQUESTS = RequestCounts(0, 0.0)
"""Of a workload that was not served before."""


class RequestSource(Protocol):
    """The part of a data plane that counts requests."""

    async def count_requests(self) -> Mapping[Key, RequestCounts]:
        """As DataPlane.count_requests."""


class SampledWorkloads(Protocol):
    """The workloads of a location, as far as their use is measured."""

    def replicas(self, key: Key) -> Sequence[Replica]:
        """The replicas of a workload."""

    def find_desired_spec(self, key: Key) -> WorkloadSpec | None:
        """What is wanted of a workload; None if it is unknown or being deleted."""


class UsageSampler(LocationPart):
    """Appends to ``history`` what containers in ``runtime`` use, and the requests that ``plane`` counts."""

    def __init__(
        self,
        runtime: StatsSource,
        plane: RequestSource,
        workloads: SampledWorkloads,
        clock: Clock,
        history: UsageHistory,
    ) -> None:
        self._runtime = runtime
        self._plane = plane
        self._workloads = workloads
        self._clock = clock
        self._history = history
        self._at: float | None = None
        self._usage: dict[ContainerId, Usage] = {}
        self._requests: Mapping[Key, RequestCounts] | None = None

    def forget(self, key: Key) -> None:
        """Delete the history of a deleted workload."""
        self._history.forget(key)

    def retain(self, keys: Collection[Key]) -> None:
        """Delete the histories of all workloads but ``keys``."""
        self._history.retain(keys)

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Measures each minute."""
        return (self._work(),)

    async def _work(self) -> None:
        count, pause = 0, FIRST
        while True:
            with suppress(EngineError), contain_bugs("usage history"):
                await self.measure(sweeps=count % _SWEEP == 0)
            await self._clock.sleep(pause)
            count, pause = count + 1, MINUTE

    async def measure(self, *, sweeps: bool = False) -> None:
        """Write what was used since the last call; nothing at the first. Raises EngineError."""
        points = await self._collect()
        await asyncio.to_thread(self._write, points, sweeps)
        # One that ended meanwhile has no history.
        for key, _ in points:
            if self._workloads.find_desired_spec(key) is None:
                self._history.forget(key)

    def _write(self, points: Sequence[tuple[Key, UsagePoint]], sweeps: bool) -> None:
        self._history.append(points)
        if sweeps:
            self._history.sweep()

    async def _collect(self) -> list[tuple[Key, UsagePoint]]:
        """The points since the last call, none at the first. Raises EngineError."""
        usage, counted = await self._runtime.stats(), None
        with suppress(EngineError):  # without a proxy, CPU and memory are known
            counted = await self._plane.count_requests()
        now = self._clock.monotonic()
        passed = now - self._at if self._at is not None else 0.0
        running: dict[Key, list[ContainerId]] = {}
        for container in usage:
            running.setdefault(container.key, []).append(container)
        points = []
        for key, containers in running.items():
            spec = self._workloads.find_desired_spec(key)
            if passed > 0 and spec is not None:
                cpu = sum(self._compute_seconds(each, usage[each]) for each in containers) / passed * 1000
                memory = float(sum(usage[each].memory for each in containers))
                requests, latency = self._compute_requests(key, counted, passed)
                ready = sum(replica.ready for replica in self._workloads.replicas(key))
                point = UsagePoint(self._clock.now(), cpu, memory, requests, latency, ready, spec.replicas)
                points.append((key, point))
        self._at, self._usage, self._requests = now, usage, counted
        return points

    def _compute_seconds(self, container: ContainerId, used: Usage) -> float:
        """The CPU seconds since the last call; all of a container that is new or began again."""
        before = self._usage.get(container)
        is_same = before is not None and used.cpu_seconds >= before.cpu_seconds
        return used.cpu_seconds - before.cpu_seconds if before is not None and is_same else used.cpu_seconds

    def _compute_requests(
        self, key: Key, counted: Mapping[Key, RequestCounts] | None, passed: float
    ) -> tuple[float | None, float | None]:
        """Requests a second since the last call, and their milliseconds on average; None where that is not known."""
        if counted is None or self._requests is None or key not in counted:
            return None, None
        before, now = self._requests.get(key, _NO_REQUESTS), counted[key]
        if now.arrived <= before.arrived:
            return (0.0 if now.arrived == before.arrived else None), None
        arrived = now.arrived - before.arrived
        if now.active_seconds is None or before.active_seconds is None:
            return arrived / passed, now.latency
        return arrived / passed, max(0.0, now.active_seconds - before.active_seconds) / arrived * 1000
