"""How many replicas there shall be, over the time, for what comes in."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.host.autoscaling.decide import (
    SETTLING,
    MetricReading,
    ScaleState,
    averaging_period,
    get_interval,
    initial_state,
    needs_metric,
    next_scale,
    recommend_replicas,
    recommend_weighted,
)
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Autoscaling, Options
from tests.support.cases import cases

KEY = Key(Kind.WORKLOAD, "shop", "web")


def wanted_of(type_: str, autoscaling: Autoscaling, capacity_ai: bool | None = None) -> WorkloadSpec:
    """A workload with these options."""
    options = Options(autoscaling=autoscaling, capacity_ai=capacity_ai)
    return WorkloadSpec(KEY, Type(type_), 1, "digest", "hash", 1, (ContainerSpec("main"),), options)


def reading_of(seen: dict[str, Any], replicas: int, now: float) -> MetricReading | None:
    """The reading of a source for ``replicas`` replicas that are all available."""
    if seen.get("value", 0) is None:
        return None
    value = seen["value"] if "value" in seen else seen["load"] / max(replicas, 1)
    return MetricReading(value, seen.get("having", replicas), now - seen.get("age", 0), seen.get("idle", 0))


def changes(course: list[list[float]]) -> list[list[float]]:
    """``course`` without entries equal to the one before."""
    return [entry for before, entry in itertools.pairwise([[-1, None], *course]) if entry[1] != before[1]]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        pytest.param(case.values[0], kind, id=f"{kind}: {case.id}")
        for kind in ("standard", "serverless")
        for case in cases(f"autoscaling/{kind}.yaml")
    ],
)
def test_replicas_follow_the_load(case: dict[str, Any], kind: str) -> None:
    autoscaling = msgspec.convert(case["options"], Autoscaling)
    running = wanted_of(case.get("type", kind), autoscaling, case.get("capacityAI"))
    begin, end = case.get("suspended", (0, 0))
    state, replicas, averaged = initial_state(running, case["present"], 0), [], []
    for now in range(case["until"] + 1):
        spec = msgspec.structs.replace(running, suspended=begin <= now < end)
        seen = case["course"][bisect.bisect_right([at for at, _ in case["course"]], now) - 1][1]
        state, count = next_scale(state, spec, reading_of(seen, state.replicas, now), now)
        state = msgspec.json.decode(msgspec.json.encode(state), type=ScaleState)
        replicas.append([now, count])
        averaged.append([now, averaging_period(state, spec, now)])
    assert changes(replicas) == case["replicas"]
    if "averaged" in case:
        assert changes(averaged) == case["averaged"]


def test_standard_workloads_are_decided_upon_every_15_seconds_and_serverless_ones_every_2() -> None:
    assert get_interval(wanted_of("standard", Autoscaling(metric="rps"))) == 15
    assert get_interval(wanted_of("serverless", Autoscaling(metric="rps"))) == 2
    assert get_interval(wanted_of("serverless", Autoscaling(metric="cpu"))) == 15


@pytest.mark.parametrize(("metric", "seconds"), [("cpu", 15), ("rps", 60), ("latency", 60)])
def test_values_are_averaged_over_the_documented_period(metric: str, seconds: float) -> None:
    assert averaging_period(ScaleState(1), wanted_of("standard", Autoscaling(metric=metric)), 0) == seconds


def test_new_bounds_are_obeyed_at_once() -> None:
    state, count = next_scale(
        ScaleState(5, (), decided=0.0), wanted_of("standard", Autoscaling("rps", max_scale=9)), None, 1
    )
    assert count == 5
    state, count = next_scale(state, wanted_of("standard", Autoscaling("rps", max_scale=3)), None, 2)
    assert count == 3
    _, count = next_scale(state, wanted_of("standard", Autoscaling("rps", min_scale=7, max_scale=9)), None, 3)
    assert count == 7


def test_one_that_sleeps_wakes_where_its_new_metric_knows_no_sleep() -> None:
    asleep = ScaleState(0, decided=0.0)
    for metric, reading in (("cpu", MetricReading(0.0, 0, 20)), ("cpu", None), ("disabled", None)):
        assert next_scale(asleep, wanted_of("serverless", Autoscaling(metric, min_scale=0)), reading, 20)[1] == 1


@pytest.mark.parametrize(
    ("type_", "autoscaling", "available", "needed"),
    [
        ("standard", Autoscaling("rps"), 1, True),
        ("standard", Autoscaling("rps"), 0, False),
        ("serverless", Autoscaling("rps", min_scale=0), 0, True),
        ("serverless", Autoscaling("cpu"), 0, False),
        ("standard", Autoscaling("disabled"), 1, False),
        ("standard", Autoscaling("rps", min_scale=3, max_scale=3), 3, False),
        ("standard", Autoscaling("rps", min_scale=0, max_scale=1), 1, False),
        ("cron", Autoscaling("rps"), 1, False),
    ],
)
def test_a_value_is_needed_where_it_could_change_the_number(
    type_: str, autoscaling: Autoscaling, available: int, needed: bool
) -> None:
    wanted = wanted_of(type_, autoscaling)
    assert needs_metric(wanted, available) == needed
    assert not needs_metric(msgspec.structs.replace(wanted, suspended=True), available)


@pytest.mark.parametrize("type_", ["standard", "serverless"])
def test_a_partial_value_scales_up_and_not_down(type_: str) -> None:
    spec = wanted_of(type_, Autoscaling("rps", 10, min_scale=1, max_scale=9))
    state = ScaleState(5, decided=0.0)
    low, high = (MetricReading(value, 5, 20, partial=True) for value in (1.0, 15.0))
    assert next_scale(state, spec, low, 20)[1] == 5
    assert next_scale(state, spec, high, 20)[1] == 8
    state = ScaleState(5, decided=0.0)
    assert next_scale(state, spec, msgspec.structs.replace(low, partial=False), 20)[1] == 1


def test_an_idle_serverless_workload_goes_to_zero_though_none_of_its_replicas_is_available() -> None:
    spec = wanted_of("serverless", Autoscaling("rps", 10, min_scale=0, scale_to_zero_delay=30))
    busy, idle = (MetricReading(value, 0, 20, seconds, partial=True) for value, seconds in ((3.0, 0.0), (0.0, 30.0)))
    assert next_scale(ScaleState(4, decided=0.0), spec, busy, 20)[1] == 4
    assert next_scale(ScaleState(4, decided=0.0), spec, idle, 20)[1] == 0


VALUES = st.floats(0, 1e6)
TARGETS = st.integers(1, 20_000)


@given(VALUES, TARGETS, st.integers(1, 1000))
def test_a_recommendation_brings_the_average_to_the_target_with_no_replica_too_many(
    value: float, target: int, current: int
) -> None:
    count = recommend_replicas(value, target, current)
    assert count * target >= value * current * (1 - 1e-6) - 1e-6 * target
    assert (count - 1) * target < value * current or count == 0


@given(VALUES, TARGETS, st.integers(0, 100), st.integers(1, 100))
def test_replicas_without_a_value_never_make_the_answer_bolder(
    value: float, target: int, having: int, current: int
) -> None:
    advice = recommend_weighted(MetricReading(value, having, 0), target, current)
    bold = recommend_replicas(value, target, max(having, current))
    assert min(current, bold) <= advice <= max(current, bold)
    assert advice <= current or value > target
    assert advice >= current or value < target


COURSES = st.lists(
    st.tuples(st.floats(0.5, 40), st.one_of(st.none(), st.tuples(st.floats(0, 1e5), st.floats(0, 400)))), max_size=60
)
BOUNDS = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@given(
    COURSES,
    BOUNDS,
    TARGETS,
    st.sampled_from(["standard", "stateful", "serverless"]),
    st.sampled_from(["cpu", "rps", "latency", "concurrency", "disabled"]),
    st.integers(0, 30),
)
def test_whatever_comes_in_the_bounds_hold_and_down_is_slow(
    course: list[tuple[float, tuple[float, float] | None]],
    bounds: list[int],
    target: int,
    type_: str,
    metric: str,
    present: int,
) -> None:
    least, most = bounds[0], max(bounds[1], 1)
    spec = wanted_of(type_, Autoscaling(metric, target, min_scale=least, max_scale=most))
    state, now, risen = initial_state(spec, present, 0), 0.0, 0.0
    for passed, seen in course:
        now += passed
        reading = MetricReading(seen[0], state.replicas, now, seen[1]) if seen else None
        before = state.replicas
        state, count = next_scale(state, spec, reading, now)
        assert count == state.replicas
        assert min(least, most) <= count <= most
        assert count > 0 or (type_ == "serverless" and metric in ("rps", "concurrency") and least == 0)
        assert len(state.past) <= SETTLING / 15 + 1
        if count > before:
            risen = now
        if count < before and get_interval(spec) == 15 and metric != "disabled":
            assert now - risen >= SETTLING - 15 or now >= SETTLING
        again, same = next_scale(state, spec, MetricReading(1e9, 5, now), now)
        assert count == 0 or (again, same) == (state, count), "nothing is weighed twice in an interval"
