"""The metrics rps and concurrency, from the counts of a data plane."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import BRISK, COLLECTED, REQUESTS, MetricReading, interval
from reconciler.engines.host.dataplane.protocol import Traffic
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of

SAMPLE = 2.0
"""Seconds between two samples."""

PERIOD = 60.0
"""The longest period of an average, in seconds (docs/platform/workload.md#scaling-decisions)."""

OUTDATED = 3 * SAMPLE
"""A workload that is decided upon at each sample has no value once its last sample is older."""


class TrafficSource(Protocol):
    """The part of a data plane that supplies samples."""

    metrics: frozenset[str]

    async def traffic(self) -> Mapping[Key, Traffic]:
        """As DataPlane.traffic."""


class _Sample(NamedTuple):
    """Requests and request-seconds since the first sample, which never run backwards."""

    at: float
    arrived: float
    active_seconds: float


class _Averages(NamedTuple):
    """Requests a second and concurrent requests of a workload, on average until ``at``."""

    at: float
    rps: float
    concurrency: float


class Meter:
    """The requests of one workload in the last minute. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.waiting = 0
        self.collected: _Averages | None = None
        self._samples: deque[_Sample] = deque()
        self._last: Traffic | None = None
        self._busy_at = now
        self._woken_at = now

    def add(self, traffic: Traffic, now: float) -> None:
        """Add a sample. A counter that is lower than before began again at 0 meanwhile."""
        before, self._last = self._last, traffic
        end = self._samples[-1] if self._samples else _Sample(now, 0.0, 0.0)
        passed = now - end.at
        arrived, active_seconds = 0.0, 0.0
        if before is not None:
            arrived = _increase(before.arrived, traffic.arrived)
            active_seconds = (before.active + traffic.active) / 2 * passed
            if before.active_seconds is not None and traffic.active_seconds is not None:
                active_seconds = _increase(before.active_seconds, traffic.active_seconds)
        if traffic.active or traffic.waiting or arrived:
            self._busy_at = now
        self.waiting = traffic.waiting
        self._samples.append(_Sample(now, end.arrived + arrived, end.active_seconds + active_seconds))
        while len(self._samples) > 1 and self._samples[1].at <= now - PERIOD:
            self._samples.popleft()

    def collect(self) -> None:
        """Keep the averages of the last minute, for decisions until the next call."""
        self.collected = self.averages(PERIOD)

    def wake(self, now: float) -> None:
        """Count a request that waits since the last sample."""
        self.waiting = max(self.waiting, 1)
        self._busy_at = self._woken_at = now

    def averages(self, seconds: float) -> _Averages | None:
        """The averages over the last ``seconds``, or since the first sample; None before the second one."""
        if len(self._samples) < 2:
            return None
        end = self._samples[-1]
        start = next((each for each in reversed(self._samples) if each.at <= end.at - seconds), self._samples[0])
        passed = end.at - start.at
        if passed <= 0:
            return None
        arrived, active_seconds = end.arrived - start.arrived, end.active_seconds - start.active_seconds
        return _Averages(end.at, arrived / passed, active_seconds / passed)

    def waiting_only(self) -> MetricReading | None:
        """The reading without an available replica: the requests that wait for one; None before the first sample."""
        at = max((self._woken_at if self.waiting else 0.0, *(each.at for each in self._samples)))
        return MetricReading(float(self.waiting), 0, at, self.idle(at)) if self.waiting or self._samples else None

    def idle(self, at: float) -> float:
        """Seconds without a new, active or waiting request until ``at``."""
        return max(at - self._busy_at, 0.0)


class RequestMetrics:
    """The metrics of all workloads of a location that ``plane`` counts; call ``collect`` every 2 seconds.

    Serverless workloads have the averages until the last sample. Others have them as they were collected last, every
    20 seconds; they are divided by the replicas that are available when a decision is made.
    """

    def __init__(self, plane: TrafficSource, clock: Clock) -> None:
        self._plane = plane
        self._clock = clock
        self._meters: dict[Key, Meter] = {}
        self._collected_at = clock.monotonic()

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics that have values here."""
        return self._plane.metrics & {*REQUESTS}

    async def collect(self) -> None:
        """Take a sample of every workload. Raises EngineError; what is known then remains, and ages."""
        found, now = await self._plane.traffic(), self._clock.monotonic()
        due = now >= self._collected_at + COLLECTED["rps"]
        for key, traffic in found.items():
            meter = self._meter(key, now)
            meter.add(traffic, now)
            if due:
                meter.collect()
        if due:
            self._collected_at = now

    def wake(self, key: Key) -> None:
        """Count a request to a workload without replicas at once, before the next sample."""
        now = self._clock.monotonic()
        self._meter(key, now).wake(now)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._meters.pop(key, None)

    def read(self, wanted: WorkloadSpec, counted: Collection[str], seconds: float, /) -> MetricReading | None:
        """As MetricSource.read; None for metrics that are not counted, and while samples are missing."""
        metric, meter = metric_of(wanted.type, wanted.options), self._meters.get(wanted.key)
        if metric not in self.metrics or meter is None:
            return None
        brisk = interval(wanted) == BRISK
        if not counted:
            reading = meter.waiting_only()
        else:
            averages = meter.averages(seconds) if brisk else meter.collected
            reading = _reading(averages, metric, len(counted), meter) if averages is not None else None
        outdated = brisk and reading is not None and self._clock.monotonic() - reading.at > OUTDATED
        return None if outdated else reading

    def _meter(self, key: Key, now: float) -> Meter:
        if key not in self._meters:
            self._meters[key] = Meter(now)
        return self._meters[key]


def _reading(averages: _Averages, metric: str, replicas: int, meter: Meter) -> MetricReading:
    whole = averages.rps if metric == "rps" else averages.concurrency
    return MetricReading(whole / replicas, replicas, averages.at, meter.idle(averages.at))


def _increase(before: float, after: float) -> float:
    """The increase of a counter that may have begun at 0 again."""
    return after - before if after >= before else after
