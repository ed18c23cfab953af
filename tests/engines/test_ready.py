"""The order of steps, as bookkeeping: what is ready, and what is blocked by what."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engines.execution.scheduler import Blocked, StepScheduler
from reconciler.engines.protocol import Result
from reconciler.planning.plan import Hold, Step
from tests.support.plans import step

Graph = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """For each position the earlier positions that it waits for."""
    size = draw(st.integers(1, 12))
    return [sorted(draw(st.sets(st.integers(0, at - 1), max_size=3))) if at else [] for at in range(size)]


def steps_of(graph: Graph) -> list[Step]:
    return [step(f"secret/s{at}", "", waits_for=[f"secret/s{one}" for one in ones]) for at, ones in enumerate(graph)]


def walk(graph: Graph, ends: dict[int, Result], seed: int) -> tuple[dict[int, Result], dict[int, Blocked], list[int]]:
    """Perform in any order that is allowed; returns how each step ended, what was blocked, the order taken."""
    order, rng = StepScheduler(steps_of(graph)), random.Random(seed)
    done: dict[int, Result] = {}
    blocked: dict[int, Blocked] = {}
    taken: list[int] = []
    while ready := [at for queue in order.ready.values() for at in queue]:
        at = rng.choice(ready)
        for queue in order.ready.values():
            if at in queue:
                queue.remove(at)
        taken.append(at)
        done[at] = ends.get(at, Result.APPLIED)
        for found in order.complete(at, done[at]):
            assert found.position not in done
            done[found.position], blocked[found.position] = found.result, found
    return done, blocked, taken


@settings(deadline=None)
@given(graphs(), st.data())
def test_every_step_ends_and_none_begins_before_what_it_waits_for(graph: Graph, data: st.DataObject) -> None:
    how = st.sampled_from([Result.FAILED, Result.WAITING])
    ends = data.draw(st.dictionaries(st.integers(0, len(graph) - 1), how, max_size=3))
    done, blocked, taken = walk(graph, ends, data.draw(st.integers(0, 99)))
    assert set(done) == set(range(len(graph)))
    for at, ones in enumerate(graph):
        if all(done[one] is Result.APPLIED for one in ones):
            assert at in taken
            assert all(taken.index(one) < taken.index(at) for one in ones)
        else:
            assert at in blocked
            failed = any(done[one] in (Result.FAILED, Result.SKIPPED) for one in ones)
            assert done[at] is (Result.SKIPPED if failed else Result.WAITING)


@settings(deadline=None)
@given(graphs(), st.data())
def test_blocked_steps_do_not_depend_on_timing(graph: Graph, data: st.DataObject) -> None:
    how = st.sampled_from([Result.FAILED, Result.WAITING])
    ends = data.draw(st.dictionaries(st.integers(0, len(graph) - 1), how, min_size=1, max_size=4))
    assert walk(graph, ends, 1)[1] == walk(graph, ends, 2)[1]


def test_a_step_that_the_plan_does_not_hold_counts_as_done() -> None:
    order = StepScheduler([step("secret/a", "", waits_for=["secret/elsewhere"])])
    assert list(order.ready[""]) == [0]


def test_a_step_on_hold_is_never_ready() -> None:
    order = StepScheduler([step("secret/a", ""), step("secret/b", "", waits_for=["secret/a"], hold=Hold.VOLUMES)])
    assert order.on_hold == [1]
    order.ready[""].clear()
    assert order.complete(0, Result.APPLIED) == []
    assert not order.ready[""]


def test_a_plan_out_of_order_is_reported_as_a_bug() -> None:
    with pytest.raises(ValueError, match="out of order: secret/a comes before secret/b"):
        StepScheduler([step("secret/a", "", waits_for=["secret/b"]), step("secret/b", "")])
