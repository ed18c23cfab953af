"""The metrics rps, concurrency and latency, from the counts of a data plane and the response times that it reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from reconciler.clock import Clock
from reconciler.engines.host.autoscaling.decide import (
    BRISK,
    COLLECTED,
    LATENCY,
    REQUESTS,
    MetricReading,
    get_interval,
)
from reconciler.engines.host.autoscaling.latency import Latencies
from reconciler.engines.host.dataplane.protocol import LatencyListener, Traffic
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import metric_of

SAMPLE = 2.0
"""Seconds between two samples."""

PERIOD = 60.0
"""The longest period of an average, in seconds (docs/platform/workload.md#scaling-decisions)."""

OUTDATED = 3 * SAMPLE
"""A workload has no value once its last sample is older."""


class TrafficSource(Protocol):
    """The part of a data plane that supplies samples."""

    metrics: frozenset[str]

    async def traffic(self) -> Mapping[Key, Traffic]:
        """As DataPlane.traffic."""

    def listen(self, listener: LatencyListener) -> None:
        """As DataPlane.listen."""


class _Sample(NamedTuple):
    """Requests and request-seconds since the first sample, which never run backwards."""

    at: float
    arrived: float
    active_seconds: float


class _Averages(NamedTuple):
    """Requests a second and concurrent requests of a workload, on average until ``at``.

    ``partial`` averages cover less than the period that was asked for.
    """

    at: float
    rps: float
    concurrency: float
    partial: bool

    @property
    def silent(self) -> bool:
        """Whether no request came, and none was active."""
        return not self.rps and not self.concurrency


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
        """Add a sample. A counter that is lower than before began again at 0 meanwhile.

        After a gap the averages begin again: whether requests came evenly during it is not known.
        """
        before, self._last, samples = self._last, traffic, self._samples
        if samples and now - samples[-1].at > OUTDATED:
            samples.clear()
        at, arrived, active_seconds = samples[-1] if samples else (now, 0.0, 0.0)
        came = 0.0
        if before is not None:
            came = _compute_increase(before.arrived, traffic.arrived)
            if before.active_seconds is not None and traffic.active_seconds is not None:
                active_seconds += _compute_increase(before.active_seconds, traffic.active_seconds)
            else:
                active_seconds += (before.active + traffic.active) / 2 * (now - at)
        if came or traffic.active or traffic.waiting or (before is not None and traffic.arrived < before.arrived):
            self._busy_at = now
        self.waiting = traffic.waiting
        samples.append(_Sample(now, arrived + came, active_seconds))
        oldest = now - PERIOD
        while len(samples) > 1 and samples[1].at <= oldest:
            samples.popleft()

    def is_outdated(self, now: float) -> bool:
        """Whether too much time has passed since the last sample or wake-up."""
        return now - self._known_at() > OUTDATED

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
        start, end = self._samples[0], self._samples[-1]
        if seconds < PERIOD:
            start = next((sample for sample in reversed(self._samples) if sample.at <= end.at - seconds), start)
        passed = end.at - start.at
        if passed <= 0:
            return None
        arrived, active_seconds = end.arrived - start.arrived, end.active_seconds - start.active_seconds
        return _Averages(end.at, arrived / passed, active_seconds / passed, passed < seconds)

    def waiting_only(self, metric: str, seconds: float) -> MetricReading | None:
        """The reading without an available replica: the requests that wait for one, or arrive; None if not known yet.

        All that wait would be concurrent. As requests a second, they count once in the longest period.
        """
        if not self.waiting and not self._samples:
            return None
        at, value = self._known_at(), float(self.waiting)
        if metric == "rps":
            averages = self.averages(seconds)
            value = max(value / PERIOD, averages.rps if averages is not None else 0.0)
        return MetricReading(value, 0, at, self.idle(at), partial=True)

    def idle(self, at: float) -> float:
        """Seconds without a new, active or waiting request until ``at``."""
        return max(at - self._busy_at, 0.0)

    def _known_at(self) -> float:
        """When the last sample was taken, or the workload was woken up."""
        return max(self._woken_at, self._samples[-1].at if self._samples else 0.0)


class RequestMetrics:
    """The metrics of all workloads of a location that ``plane`` counts; call ``collect`` every 2 seconds.

    Serverless workloads have the averages until the last sample. Others have them as they were collected last, every
    20 seconds; they are divided by the replicas that are available when a decision is made.
    """

    def __init__(self, plane: TrafficSource, clock: Clock) -> None:
        self.metrics = plane.metrics & {*REQUESTS, LATENCY}
        self._plane = plane
        self._clock = clock
        self._meters: dict[Key, Meter] = {}
        self._latencies = Latencies()
        self._collected_at = clock.monotonic()
        plane.listen(self._latencies.add)

    async def collect(self) -> None:
        """Take a sample of every workload. Raises EngineError; what is known then remains, and ages."""
        started = self._clock.monotonic()
        due = started >= self._collected_at + COLLECTED["rps"]
        if due:
            self._collected_at = started
            self._latencies.collect(started)
        traffics, now = await self._plane.traffic(), self._clock.monotonic()
        for key, traffic in traffics.items():
            meter = self._meters.get(key) or self._meter(key, now)
            meter.add(traffic, now)
            if due:
                meter.collect()

    def wake(self, key: Key) -> None:
        """Count a request to a workload without replicas at once, before the next sample."""
        now = self._clock.monotonic()
        self._meter(key, now).wake(now)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload."""
        self._meters.pop(key, None)
        self._latencies.forget(key)

    def read(self, spec: WorkloadSpec, counted: Collection[str], seconds: float, /) -> MetricReading | None:
        """As MetricSource.read; None for metrics that are not counted, and while samples are missing."""
        metric, key = metric_of(spec.type, spec.options), spec.key
        if metric == LATENCY and LATENCY in self.metrics:
            self._latencies.follow(key)
            return self._latency(spec, counted)
        self._latencies.forget(key)
        meter = self._meters.get(key) if metric in self.metrics else None
        if meter is None or meter.is_outdated(self._clock.monotonic()):
            return None
        if not counted:
            return meter.waiting_only(metric, seconds)
        averages = meter.averages(seconds) if get_interval(spec) == BRISK else meter.collected
        if averages is None:
            return None
        whole = averages.rps if metric == "rps" else averages.concurrency
        value, idle = whole / len(counted), meter.idle(averages.at)
        return MetricReading(value, len(counted), averages.at, idle, averages.partial)

    def _latency(self, spec: WorkloadSpec, counted: Collection[str]) -> MetricReading | None:
        """The percentile, averaged over the replicas that answered; 0 after a minute without requests.

        A minute without answers to the requests that were counted has no value: the reports of answers are lost, or
        all answers take longer.
        """
        percentile = spec.options.autoscaling.metric_percentile or "p50"
        latencies, meter = self._latencies.values(spec.key, counted, percentile), self._meters.get(spec.key)
        if latencies is None or not counted:
            return None
        at, values = latencies
        if values:
            return MetricReading(sum(values) / len(values), len(values), at)
        averages = meter.collected if meter is not None else None
        silent = averages is not None and averages.at >= at and averages.silent and not averages.partial
        return MetricReading(0.0, len(counted), at) if silent else None

    def _meter(self, key: Key, now: float) -> Meter:
        if key not in self._meters:
            self._meters[key] = Meter(now)
        return self._meters[key]


def _compute_increase(before: float, after: float) -> float:
    """The increase of a counter that may have begun at 0 again."""
    return after - before if after >= before else after
