"""Requests as a metric: what samples of a data plane come to."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import msgspec
import pytest

from reconciler.engines.host.autoscaling.decide import MetricReading
from reconciler.engines.host.autoscaling.request_metrics import PERIOD, SAMPLE, RequestMetrics
from reconciler.engines.host.dataplane.protocol import LatencyListener, Traffic
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Autoscaling
from tests.engines.host.autoscaling.test_autoscaling import KEY, wanted_of
from tests.support.clock import FakeClock

RPS = wanted_of("serverless", Autoscaling("rps"))
CONCURRENCY = wanted_of("serverless", Autoscaling("concurrency"))
LATENCY = wanted_of("standard", Autoscaling("latency", metric_percentile="p75"))
STEADY_RPS = wanted_of("standard", Autoscaling("rps"))


class Counts:
    """What a data plane counts; None: it does not answer."""

    def __init__(self, *metrics: str) -> None:
        self.metrics = frozenset(metrics)
        self.listeners: list[LatencyListener] = []
        self.found: dict[Key, Traffic] | None = None

    async def traffic(self) -> dict[Key, Traffic]:
        """As DataPlane.traffic."""
        if self.found is None:
            raise EngineError("The proxy does not answer.")
        return self.found

    def listen(self, listener: LatencyListener) -> None:
        """As DataPlane.listen."""
        self.listeners.append(listener)


class TrafficSamples:
    """Samples of one workload, two seconds apart, and the readings that follow from them."""

    def __init__(self, *metrics: str) -> None:
        self.clock = FakeClock(auto=True)
        self._counts = Counts(*(metrics or ("rps", "concurrency")))
        self.metrics = RequestMetrics(self._counts, self.clock)

    def sample(self, *traffic: Traffic | None) -> TrafficSamples:
        """Two seconds pass before each sample; None: the data plane does not answer."""

        async def collect() -> None:
            for each in traffic:
                await self.clock.sleep(SAMPLE)
                self._counts.found = {KEY: each} if each is not None else None
                with suppress(EngineError):
                    await self.metrics.collect()

        asyncio.run(collect())
        return self

    def answer(self, *milliseconds: float, replica: str = "r0") -> TrafficSamples:
        """The data plane reports answers of a replica."""
        for each in milliseconds:
            for listener in self._counts.listeners:
                listener(KEY, replica, each)
        return self

    def read(self, wanted: WorkloadSpec, replicas: int = 1, seconds: float = PERIOD) -> MetricReading | None:
        """The reading for so many available replicas."""
        return self.metrics.read(wanted, [f"r{number}" for number in range(replicas)], seconds)


def steady(rate: float, active: int, samples: int, first: int = 0) -> list[Traffic]:
    """``rate`` requests a second, with ``active`` at any moment."""
    return [Traffic(first + round(rate * SAMPLE * number), active) for number in range(samples)]


def test_rps_are_the_requests_that_arrived_for_each_replica() -> None:
    samples = TrafficSamples().sample(*steady(50, 3, 31))
    assert samples.read(RPS, 2) == MetricReading(pytest.approx(25.0), 2, 62.0, 0.0)


def test_concurrency_is_the_average_number_of_active_requests_for_each_replica() -> None:
    samples = TrafficSamples().sample(*steady(50, 8, 16), *steady(50, 4, 15, first=1600))
    assert samples.read(CONCURRENCY, 2) == MetricReading(pytest.approx(3.0, rel=0.02), 2, 62.0, 0.0)


def test_concurrency_between_samples_counts_where_the_data_plane_knows_it() -> None:
    samples = TrafficSamples().sample(*(Traffic(number, 0, active_seconds=number * 1.0) for number in range(31)))
    assert samples.read(CONCURRENCY) == MetricReading(pytest.approx(0.5), 1, 62.0, 0.0)


def test_only_the_period_counts() -> None:
    samples = TrafficSamples().sample(*steady(10, 1, 31), *steady(100, 1, 4, first=800))
    assert samples.read(RPS, seconds=6.0) == MetricReading(pytest.approx(100.0), 1, 70.0, 0.0)
    found = samples.read(RPS)
    assert found is not None
    assert found.value == pytest.approx((27 * 20 + 200 + 3 * 200) / 60, rel=0.02)


def test_counters_of_a_restarted_proxy_are_no_negative_rate() -> None:
    before, after = steady(50, 2, 16), steady(50, 2, 16, first=100)
    samples = TrafficSamples().sample(*before, *after)
    assert samples.read(RPS) == MetricReading(pytest.approx(50.0, rel=0.02), 1, 64.0, 0.0)


def test_seconds_of_a_restarted_proxy_are_no_negative_concurrency() -> None:
    seconds = [*range(0, 32, 2), *range(2, 32, 2)]
    samples = TrafficSamples().sample(*(Traffic(0, 1, active_seconds=float(each)) for each in seconds))
    assert samples.read(CONCURRENCY) == MetricReading(pytest.approx(1.0), 1, 62.0, 0.0)


def test_after_a_gap_the_average_begins_again_and_is_partial_for_its_period() -> None:
    samples = TrafficSamples().sample(*steady(50, 2, 40), *[None] * 10, Traffic(9000, 2))
    assert samples.read(RPS) is None, "nothing is known of the seconds before"
    samples.sample(Traffic(9100, 2))
    assert samples.read(RPS) == MetricReading(pytest.approx(50.0), 1, 104.0, 0.0, partial=True)
    samples.sample(*steady(50, 2, 28, first=9200))
    assert samples.read(RPS) == MetricReading(pytest.approx(50.0), 1, 160.0, 0.0, partial=True)
    samples.sample(Traffic(12_000, 2))
    assert samples.read(RPS) == MetricReading(pytest.approx(50.0), 1, 162.0, 0.0)


def test_requests_may_have_come_before_a_proxy_restarted() -> None:
    samples = TrafficSamples().sample(*[Traffic(9, 0)] * 10)
    assert (reading := samples.read(RPS)) is not None
    assert reading.idle == 18.0
    assert (reading := samples.sample(Traffic(0, 0)).read(RPS)) is not None
    assert reading.idle == 0.0


def test_while_samples_are_missing_there_is_no_value() -> None:
    samples = TrafficSamples().sample(*steady(50, 2, 10), None, None, None)
    assert samples.read(RPS) is not None
    assert samples.sample(None).read(RPS) is None
    assert samples.read(RPS, 0) is None


def test_one_sample_gives_no_value() -> None:
    assert TrafficSamples().sample(Traffic(5, 1)).read(RPS) is None


def test_idle_seconds_run_from_the_last_request_to_the_last_sample() -> None:
    samples = TrafficSamples().sample(Traffic(0, 0), Traffic(1, 0), *[Traffic(1, 0)] * 5)
    found = samples.read(RPS)
    assert found is not None
    assert found.idle == 10.0
    again = samples.sample(None, None).read(RPS)
    assert again is not None
    assert again.idle == 10.0, "nothing is known of the seconds since"


@pytest.mark.parametrize("busy", [Traffic(1, 1), Traffic(1, 0, 1)], ids=["active", "waiting"])
def test_a_workload_with_requests_is_not_idle(busy: Traffic) -> None:
    found = TrafficSamples().sample(*[busy] * 10).read(RPS)
    assert found is not None
    assert found.idle == 0.0


def test_without_a_replica_the_value_is_the_number_of_waiting_requests() -> None:
    samples = TrafficSamples().sample(Traffic(0, 0), Traffic(8, 0, 8))
    assert samples.read(CONCURRENCY, 0) == MetricReading(8.0, 0, 4.0, 0.0, partial=True)
    samples.sample(Traffic(8, 0), Traffic(8, 0))
    assert samples.read(CONCURRENCY, 0) == MetricReading(0.0, 0, 8.0, 4.0, partial=True)


def test_without_a_replica_rps_are_the_requests_that_arrive() -> None:
    samples = TrafficSamples().sample(Traffic(0, 0), Traffic(8, 0, 8))
    assert samples.read(RPS, 0) == MetricReading(4.0, 0, 4.0, 0.0, partial=True)
    samples.sample(*[Traffic(8, 0, 8)] * 60)
    assert samples.read(RPS, 0) == MetricReading(8 / PERIOD, 0, 124.0, 0.0, partial=True), "they wait still"


def test_the_first_request_counts_before_the_next_sample() -> None:
    samples = TrafficSamples()
    samples.metrics.wake(KEY)
    assert samples.read(CONCURRENCY, 0) == MetricReading(1.0, 0, 0.0, 0.0, partial=True)
    assert samples.read(RPS, 0) == MetricReading(1 / PERIOD, 0, 0.0, 0.0, partial=True)
    samples.sample(Traffic(0, 0), Traffic(0, 0))
    assert samples.read(RPS, 0) == MetricReading(0.0, 0, 4.0, 4.0, partial=True)
    samples.metrics.wake(KEY)
    assert samples.read(RPS, 0) == MetricReading(1 / PERIOD, 0, 4.0, 0.0, partial=True)


def test_for_other_types_values_are_collected_every_20_seconds() -> None:
    samples = TrafficSamples().sample(*steady(50, 2, 9))
    assert samples.read(STEADY_RPS) is None
    samples.sample(*steady(50, 2, 5, first=900))
    assert samples.read(STEADY_RPS, 2) == MetricReading(pytest.approx(25.0), 2, 20.0, 0.0, partial=True)
    samples.sample(*steady(500, 2, 6, first=1400))
    assert samples.read(STEADY_RPS) == MetricReading(pytest.approx(6400 / 38), 1, 40.0, 0.0, partial=True)


@pytest.mark.parametrize("metric", ["cpu", "latency"])
def test_other_metrics_have_no_value(metric: str) -> None:
    samples = TrafficSamples().sample(*steady(50, 2, 31))
    assert samples.read(wanted_of("stateful", Autoscaling(metric))) is None


def test_a_metric_that_the_data_plane_cannot_count_has_no_value() -> None:
    samples = TrafficSamples("concurrency").sample(*steady(50, 2, 31))
    assert samples.read(RPS) is None
    assert samples.read(CONCURRENCY) is not None


def test_other_workloads_and_deleted_ones_have_no_value() -> None:
    samples = TrafficSamples().sample(*steady(50, 2, 31))
    assert samples.read(msgspec.structs.replace(RPS, key=Key(Kind.WORKLOAD, "shop", "api"))) is None
    samples.metrics.forget(KEY)
    assert samples.read(RPS) is None


def slow() -> TrafficSamples:
    """A data plane that reports the answers of a workload that is scaled by latency."""
    samples = TrafficSamples("latency", "rps")
    assert samples.read(LATENCY) is None
    return samples


def busy(samples: int) -> list[Traffic]:
    """Requests go on; each call continues the one before."""
    return [Traffic(next(_arrived), 1) for _ in range(samples)]


_arrived = itertools.count(1)


def test_latency_is_the_percentile_of_each_replica_on_average_over_them() -> None:
    samples = slow().answer(*range(1, 101)).answer(*[500.0] * 10, replica="r1").answer(9999.0, replica="gone")
    samples.sample(*busy(10))
    assert samples.read(LATENCY, 2) == MetricReading(pytest.approx((75 + 500) / 2, rel=0.025), 2, 20.0)
    assert samples.read(LATENCY, 3) == MetricReading(pytest.approx((75 + 500) / 2, rel=0.025), 2, 20.0)
    assert samples.read(LATENCY, 1) == MetricReading(pytest.approx(75, rel=0.025), 1, 20.0)
    assert samples.read(LATENCY, 0) is None


def test_answers_count_for_a_minute() -> None:
    samples = slow().answer(100.0).sample(*busy(10)).answer(300.0).sample(*busy(20))
    assert samples.read(LATENCY) == MetricReading(pytest.approx(300, rel=0.025), 1, 60.0)
    samples.sample(*busy(10))
    assert samples.read(LATENCY) == MetricReading(pytest.approx(300, rel=0.025), 1, 80.0)
    samples.sample(*busy(10))
    assert samples.read(LATENCY) is None, "requests come, and no answer is reported"


def test_a_minute_without_requests_is_a_latency_of_zero() -> None:
    samples = slow().answer(100.0).sample(Traffic(1, 0), *[Traffic(1, 0)] * 29)
    assert samples.read(LATENCY) == MetricReading(pytest.approx(100, rel=0.025), 1, 60.0)
    samples.sample(*[Traffic(1, 0)] * 10)
    assert samples.read(LATENCY, 3) == MetricReading(0.0, 3, 80.0)
    samples.sample(*[None] * 10)
    assert samples.read(LATENCY) is None, "whether requests came is not known"


def test_answers_of_workloads_that_are_scaled_otherwise_are_not_counted() -> None:
    samples = TrafficSamples("latency", "rps").answer(100.0).sample(*busy(10))
    assert samples.read(LATENCY) is None
    samples.answer(100.0).sample(*busy(10))
    assert samples.read(LATENCY) is not None
    assert samples.read(STEADY_RPS) is not None
    samples.answer(100.0).sample(*busy(10))
    assert samples.read(LATENCY) is None
