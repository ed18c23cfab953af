"""Sources of the metrics that workloads are scaled by, and the CPU metric, from the counters of the runtime."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import LATENCY, MetricReading
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import RESOURCE_METRICS, metric_of
from reconciler.reasons import Reason

COLLECT = 15.0
"""Seconds between two samples of CPU (docs/platform/workload.md#scaling-decisions)."""

UNKNOWN = 30.0
"""Seconds without a value after which users are informed."""
FIRST_LATENCY = 90.0
"""The same for the first value of latency: it comes after a minute, and others every 20 seconds."""


class MetricSource(Protocol):
    """Provides the values of one or more ``metrics`` for every workload of a location."""

    metrics: frozenset[str]

    def read(self, spec: WorkloadSpec, counted: Collection[str], seconds: float, /) -> MetricReading | None:
        """The latest value of the metric and percentile in the options of ``spec``, an average as in MetricReading.

        ``counted`` are the names of the replicas that count (see ``counted_replicas``); ``seconds`` is the period to
        average over. None if there is no value yet, or none at all.
        """


class MetricSources:
    """Several sources as one: the first value that one of them has."""

    def __init__(self, sources: Iterable[MetricSource]) -> None:
        self._sources = tuple(sources)
        self.metrics = frozenset[str]().union(*(source.metrics for source in self._sources))

    def read(self, spec: WorkloadSpec, counted: Collection[str], seconds: float, /) -> MetricReading | None:
        """As MetricSource.read."""
        for source in self._sources:
            reading = source.read(spec, counted, seconds)
            if reading is not None:
                return reading
        return None


class UnknownMetrics:
    """The workloads whose metric has had no value for 30 seconds, or for 90 before the first value of latency.

    An event reports each, and its end.
    """

    def __init__(self, signals: LocationSignals) -> None:
        self._signals = signals
        self._since: dict[Key, float] = {}
        self._metrics: dict[Key, str] = {}
        self._known: dict[Key, str] = {}

    def note(self, key: Key, metric: str, *, is_known: bool, now: float, needed: bool = True) -> None:
        """Note whether ``metric`` has a value at ``now``, and whether one is needed."""
        if is_known:
            self._known[key] = metric
        if is_known or not needed:
            self._since.pop(key, None)
            if self._metrics.pop(key, None) is not None:
                self._signals.report(key, Reason.SCALING_KNOWN, f"the metric {metric} has values again")
        elif now >= self._since.setdefault(key, now) + self._patience(key, metric) and self._metrics.get(key) != metric:
            self._metrics[key] = metric
            self._signals.report(key, Reason.SCALING_UNKNOWN, self.message(key))

    def message(self, key: Key) -> str:
        """Why nothing scales ``key``; "" if its metric has values."""
        metric = self._metrics.get(key)
        return f"the metric {metric} has no value: the number of replicas stays as it is" if metric else ""

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._since.pop(key, None)
        self._metrics.pop(key, None)
        self._known.pop(key, None)

    def _patience(self, key: Key, metric: str) -> float:
        return FIRST_LATENCY if metric == LATENCY and self._known.get(key) != metric else UNKNOWN


def counted_replicas(metric: str, replicas: Iterable[Replica], now: float) -> frozenset[str]:
    """The names of the replicas whose values of ``metric`` count: those that are available.

    For cpu and memory they must have been available since before the sample. Starting takes CPU that is no load; if
    more replicas were started because of it, scaling up would never end.
    """
    latest = now - (2 * COLLECT if metric in RESOURCE_METRICS else 0.0)
    return frozenset(
        [
            replica.name
            for replica in replicas
            if (since := replica.ready_since) is not None and since <= latest and replica.ready
        ]
    )


class StatsSource(Protocol):
    """The part of a runtime that supplies samples."""

    async def stats(self) -> dict[ContainerId, Usage]:
        """As Runtime.stats."""


class Used(msgspec.Struct, frozen=True):
    """Usage of a container between the last two samples: average millicores, and bytes of memory at the end."""

    cpu: float
    memory: int


class UsageMetric:
    """What a replica uses between the last two samples, in percent of the CPU or the memory of its containers.

    A sample covers the whole location; call ``collect`` every 15 seconds. A container that is missing in one of the
    samples, or that restarted in between, has no value, and neither has its replica.
    """

    metrics = RESOURCE_METRICS

    def __init__(self, runtime: StatsSource, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._at: float | None = None
        self._last: dict[ContainerId, Usage] = {}
        self._used: dict[Key, dict[ContainerId, Used]] = {}

    async def collect(self) -> None:
        """Take a sample. Raises EngineError; the previous sample then remains, and ages."""
        usages = await self._runtime.stats()
        now = self._clock.monotonic()
        passed = now - self._at if self._at is not None else 0.0
        used: dict[Key, dict[ContainerId, Used]] = {}
        for container_id, usage in usages.items():
            before = self._last.get(container_id)
            if passed > 0 and before is not None and usage.cpu_seconds >= before.cpu_seconds:
                cpu = (usage.cpu_seconds - before.cpu_seconds) / passed * 1000
                used.setdefault(container_id.key, {})[container_id] = Used(cpu, usage.memory)
        self._at, self._last, self._used = now, usages, used

    def usage(self, key: Key) -> dict[ContainerId, Used]:
        """Usage of each container of a workload, for Capacity AI and for users."""
        return dict(self._used.get(key, {}))

    def read(self, spec: WorkloadSpec, counted: Collection[str], _: float = COLLECT, /) -> MetricReading | None:
        """As MetricSource.read; None for other metrics; averaged over the time between two samples."""
        metric = metric_of(spec.type, spec.options)
        if metric not in self.metrics:
            return None
        by_cpu, names = metric == "cpu", {container.name for container in spec.containers}
        requested = sum(container.cpu if by_cpu else container.memory for container in spec.containers)
        amounts: dict[str, dict[str, float]] = {}
        for container_id, used in self._used.get(spec.key, {}).items():
            if container_id.replica in counted and container_id.container in names:
                amounts.setdefault(container_id.replica, {})[container_id.container] = (
                    used.cpu if by_cpu else used.memory
                )
        whole = [sum(amount.values()) for amount in amounts.values() if amount.keys() == names]
        if not whole or not requested or self._at is None:
            return None
        return MetricReading(100 * sum(whole) / len(whole) / requested, len(whole), self._at)
