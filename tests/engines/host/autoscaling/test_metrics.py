"""The use of CPU as a metric: what samples of a runtime come to."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from reconciler.engines.host.autoscaling.decide import MetricReading
from reconciler.engines.host.autoscaling.metrics import UnknownMetrics, UsageMetric, Used, counted_replicas
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Autoscaling
from tests.engines.host.autoscaling.test_autoscaling import KEY, wanted_of
from tests.engines.host.signals import RecordedSignals
from tests.support.clock import FakeClock

WANTED = msgspec.structs.replace(
    wanted_of("standard", Autoscaling("cpu")),
    containers=(ContainerSpec("main", cpu=400), ContainerSpec("side", cpu=100)),
)


class Counters:
    """What a runtime counts: (replica, container) → CPU seconds."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = {}

    async def stats(self) -> dict[ContainerId, Usage]:
        """As Runtime.stats."""
        if not self.seconds:
            raise EngineError("Nothing can be counted.")
        return {ContainerId(KEY, *which): Usage(seconds, 1000) for which, seconds in self.seconds.items()}


def sampled(*samples: dict[tuple[str, str], float]) -> UsageMetric:
    """What is known after samples 15 seconds apart."""

    async def scenario() -> UsageMetric:
        clock, counters = FakeClock(auto=True), Counters()
        metric = UsageMetric(counters, clock)
        for sample in samples:
            await clock.sleep(15)
            counters.seconds = sample
            with suppress(EngineError):
                await metric.collect()
        return metric

    return asyncio.run(scenario())


FIRST = {("a", "main"): 10.0, ("a", "side"): 1.0, ("b", "main"): 20.0, ("b", "side"): 2.0}
BUSY = {("a", "main"): 13.0, ("a", "side"): 1.75, ("b", "main"): 26.0, ("b", "side"): 2.75}


def test_the_value_is_the_average_use_of_the_limits_over_replicas() -> None:
    metric = sampled(FIRST, BUSY)
    assert metric.read(WANTED, {"a"}) == MetricReading(pytest.approx(50.0), 1, 30)
    assert metric.read(WANTED, {"a", "b"}) == MetricReading(pytest.approx((50 + 90) / 2), 2, 30)
    assert metric.usage(KEY)[ContainerId(KEY, "a", "main")] == Used(pytest.approx(200.0), 1000)


def test_the_memory_is_that_of_the_last_sample() -> None:
    spec = msgspec.structs.replace(
        wanted_of("standard", Autoscaling("memory")),
        containers=(ContainerSpec("main", memory=3000), ContainerSpec("side", memory=1000)),
    )
    metric = sampled(FIRST, BUSY)
    assert metric.read(spec, {"a"}) == MetricReading(pytest.approx(50.0), 1, 30)
    assert metric.read(spec, {"a", "b"}) == MetricReading(pytest.approx(50.0), 2, 30)
    assert metric.read(spec, {"c"}) is None
    assert sampled(FIRST).read(spec, {"a"}) is None


def test_a_single_sample_gives_no_value() -> None:
    assert sampled(FIRST).read(WANTED, {"a", "b"}) is None


def test_only_what_happened_since_the_sample_before_counts() -> None:
    assert sampled(FIRST, BUSY, BUSY).read(WANTED, {"a", "b"}) == MetricReading(0.0, 2, 45)


@pytest.mark.parametrize(
    "second",
    [
        {**BUSY, ("a", "main"): 0.5},
        {which: seconds for which, seconds in BUSY.items() if which != ("a", "side")},
    ],
    ids=["started anew", "gone"],
)
def test_a_replica_has_no_value_where_one_of_its_containers_has_none(second: dict[tuple[str, str], float]) -> None:
    assert sampled(FIRST, second).read(WANTED, {"a", "b"}) == MetricReading(pytest.approx(90.0), 1, 30)


def test_other_replicas_and_other_workloads_do_not_count() -> None:
    metric = sampled(FIRST, BUSY)
    assert metric.read(WANTED, {"c"}) is None
    other = msgspec.structs.replace(WANTED, key=Key(Kind.WORKLOAD, "shop", "api"))
    assert metric.read(other, {"a", "b"}) is None
    assert metric.usage(other.key) == {}


def test_workloads_that_are_scaled_by_something_else_have_no_value() -> None:
    options = msgspec.structs.replace(WANTED.options, autoscaling=Autoscaling("rps"))
    assert sampled(FIRST, BUSY).read(msgspec.structs.replace(WANTED, options=options), {"a", "b"}) is None


def test_a_sample_that_fails_leaves_what_is_known() -> None:
    assert sampled(FIRST, BUSY, {}).read(WANTED, {"a"}) == MetricReading(pytest.approx(50.0), 1, 30)


async def test_a_failure_to_sample_is_an_error() -> None:
    with pytest.raises(EngineError):
        await UsageMetric(Counters(), FakeClock()).collect()


def test_replicas_count_once_they_are_ready_and_for_cpu_once_their_start_is_past() -> None:
    ready = [
        Replica(name, KEY, 1, "hash", 0.0, (), ready_since=since, ending=ending)
        for name, since, ending in (("old", 60.0, None), ("new", 80.0, None), ("not", None, None), ("going", 0.0, 90.0))
    ]
    assert counted_replicas("rps", ready, 100) == {"old", "new"}
    assert counted_replicas("cpu", ready, 100) == {"old"}
    assert counted_replicas("cpu", ready, 110) == {"old", "new"}


def test_the_first_value_of_latency_is_awaited_for_a_minute() -> None:
    events: list[EngineEvent] = []
    unknown = UnknownMetrics(RecordedSignals(events))
    for at in range(0, 90, 2):
        unknown.note(KEY, "latency", is_known=False, now=at)
    assert events == []
    unknown.note(KEY, "latency", is_known=False, now=90)
    assert [event.reason for event in events] == ["ScalingUnknown"]
    for at, known in ((92, True), (94, False), (124, False)):
        unknown.note(KEY, "latency", is_known=known, now=at)
    assert [event.reason for event in events] == ["ScalingUnknown", "ScalingKnown", "ScalingUnknown"]


def test_a_metric_without_a_value_for_30_seconds_is_reported_once_and_so_is_its_return() -> None:
    events: list[EngineEvent] = []
    unknown = UnknownMetrics(RecordedSignals(events))
    for at, known in ((0, True), (2, False), (30, False), (31, True), (32, False), (61, False)):
        unknown.note(KEY, "rps", is_known=known, now=at)
        assert (unknown.message(KEY), events) == ("", [])
    for at in (62, 64):
        unknown.note(KEY, "rps", is_known=False, now=at)
    assert unknown.message(KEY) == "the metric rps has no value: the number of replicas stays as it is"
    unknown.note(KEY, "rps", is_known=True, now=66)
    assert unknown.message(KEY) == ""
    assert [(each.key, each.reason) for each in events] == [(KEY, "ScalingUnknown"), (KEY, "ScalingKnown")]
    unknown.note(KEY, "rps", is_known=False, now=70)
    unknown.forget(KEY)
    unknown.note(KEY, "rps", is_known=False, now=100)
    assert unknown.message(KEY) == ""
