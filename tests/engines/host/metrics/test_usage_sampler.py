"""What a workload uses in a minute: from the counts of a runtime and of a data plane."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.protocol import RequestCounts
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.metrics.usage_sampler import FIRST, UsageSampler
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage
from reconciler.engines.usage_history import UsageHistory, UsagePoint
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Autoscaling
from reconciler.tasks import cancel_and_wait
from tests.engines.host.autoscaling.test_autoscaling import KEY, wanted_of
from tests.support.clock import FakeClock

MEMORY = 1000


class Measured:
    """A runtime, a data plane and workloads: (replica, container) → CPU seconds, and the requests of KEY."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = {}
        self.counted: RequestCounts | None = None
        self.spec: WorkloadSpec | None = wanted_of("standard", Autoscaling("cpu"))
        self.fails = self.proxy_fails = False

    async def stats(self) -> dict[ContainerId, Usage]:
        """As Runtime.stats."""
        if self.fails:
            raise EngineError("Nothing can be counted.")
        return {ContainerId(KEY, *which): Usage(seconds, MEMORY) for which, seconds in self.seconds.items()}

    async def count_requests(self) -> Mapping[Key, RequestCounts]:
        """As DataPlane.count_requests."""
        if self.proxy_fails:
            raise EngineError("There is no proxy.")
        return {} if self.counted is None else {KEY: self.counted}

    def replicas(self, _key: Key) -> tuple[Replica, ...]:
        """None is ready."""
        return ()

    def find_desired_spec(self, _key: Key) -> WorkloadSpec | None:
        """What is wanted."""
        return self.spec


class Stage:
    """A sampler, what it measures, and what it wrote."""

    def __init__(self, root: Path) -> None:
        self.clock, self.measured, self.history = FakeClock(), Measured(), UsageHistory(root)
        measured = self.measured
        self.sampler = UsageSampler(measured, measured, measured, self.clock, self.history)

    async def measure(
        self, seconds: dict[tuple[str, str], float], counted: RequestCounts | None = None
    ) -> list[UsagePoint]:
        """What is written once a minute has passed, in which the counts became these."""
        self.clock.block(60)
        self.measured.seconds, self.measured.counted = seconds, counted
        await self.sampler.measure()
        return self.history.read(KEY, self.clock.now())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


MAIN, SIDE = ("a", "main"), ("a", "side")


async def test_a_minute_has_the_mean_of_the_cpu_and_the_memory_of_all_containers(stage: Stage) -> None:
    assert await stage.measure({MAIN: 100.0, SIDE: 5.0}) == []
    (point,) = await stage.measure({MAIN: 106.0, SIDE: 8.0})
    assert (point.at, point.cpu, point.memory) == (stage.clock.now(), pytest.approx(150.0), 2.0 * MEMORY)
    assert (point.requests, point.latency, point.ready, point.wanted) == (None, None, 0, stage.measured.spec.replicas)


async def test_a_container_that_is_new_or_began_again_counts_with_all_that_it_used(stage: Stage) -> None:
    await stage.measure({MAIN: 100.0})
    *_, point = await stage.measure({MAIN: 3.0, ("b", "main"): 3.0})
    assert point.cpu == pytest.approx(100.0)


async def test_requests_are_by_the_second_and_latency_is_their_mean(stage: Stage) -> None:
    await stage.measure({MAIN: 0.0}, RequestCounts(100, 10.0))
    *_, point = await stage.measure({MAIN: 0.0}, RequestCounts(220, 16.0))
    assert (point.requests, point.latency) == (pytest.approx(2.0), pytest.approx(50.0))
    *_, quiet = await stage.measure({MAIN: 0.0}, RequestCounts(220, 16.0))
    assert (quiet.requests, quiet.latency) == (0.0, None)
    *_, restarted = await stage.measure({MAIN: 0.0}, RequestCounts(3, 0.1))
    assert (restarted.requests, restarted.latency) == (None, None)
    *_, unmeasured = await stage.measure({MAIN: 0.0}, RequestCounts(63))
    assert (unmeasured.requests, unmeasured.latency) == (pytest.approx(1.0), None)
    *_, timed = await stage.measure({MAIN: 0.0}, RequestCounts(123, latency=7.5))
    assert (timed.requests, timed.latency) == (pytest.approx(1.0), 7.5)


async def test_what_is_served_only_now_counts_from_nothing(stage: Stage) -> None:
    await stage.measure({MAIN: 0.0})
    (point,) = await stage.measure({MAIN: 0.0}, RequestCounts(30, 1.5))
    assert (point.requests, point.latency) == (pytest.approx(0.5), pytest.approx(50.0))


async def test_without_a_proxy_the_rest_is_known(stage: Stage) -> None:
    await stage.measure({MAIN: 0.0})
    stage.measured.proxy_fails = True
    (point,) = await stage.measure({MAIN: 6.0})
    assert (point.cpu, point.requests) == (pytest.approx(100.0), None)


async def test_what_does_not_run_has_no_points(stage: Stage) -> None:
    await stage.measure({MAIN: 1.0})
    assert len(await stage.measure({MAIN: 1.0})) == 1
    assert len(await stage.measure({})) == 1
    stage.measured.spec = None
    assert len(await stage.measure({MAIN: 2.0})) == 1


async def test_a_runtime_that_cannot_be_counted_leaves_a_gap(stage: Stage) -> None:
    await stage.measure({MAIN: 0.0})
    stage.measured.fails = True
    with pytest.raises(EngineError):
        await stage.measure({MAIN: 6.0})
    stage.measured.fails = False
    (point,) = await stage.measure({MAIN: 12.0})
    assert point.cpu == pytest.approx(100.0)  # of two minutes


async def test_a_workload_that_is_deleted_has_no_history(stage: Stage) -> None:
    await stage.measure({MAIN: 0.0})
    assert len(await stage.measure({MAIN: 6.0})) == 1
    stage.sampler.forget(KEY)
    assert stage.history.read(KEY, stage.clock.now()) == []


async def test_it_measures_by_itself_from_the_start_on(stage: Stage) -> None:
    (work,) = stage.sampler.work()
    stage.measured.seconds = {MAIN: 0.0}
    task = asyncio.create_task(work)
    try:
        await stage.clock.advance(FIRST + 1)
        while not stage.history.read(KEY, stage.clock.now()):
            await stage.clock.advance(0.1)
    finally:
        await cancel_and_wait([task], "sampler")
