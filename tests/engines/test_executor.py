"""The executor over the ledger engine: order, isolation, retry, pre-emption, and the records afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from reconciler.errors import DiskFull
from reconciler.model.record import Health
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Hold, Plan
from tests.engines.test_ready import Graph, graphs
from tests.support.buggy import forget_logged
from tests.support.clock import FakeClock
from tests.support.engines import LedgerEngine
from tests.support.examples import examples
from tests.support.plans import ExecutorHarness, ends, plan, step


class LedgerHarness(ExecutorHarness):
    """A harness with a ledger at ``here`` and one for resources without a place."""

    def __init__(self, path: Path, *, auto: bool = True, parallel: int = 8) -> None:
        super().__init__(path, FakeClock(auto=auto), parallel=parallel)
        self.time: FakeClock = self.clock  # type: ignore[assignment]
        self.here = LedgerEngine(path / "here", "here")
        self.org = LedgerEngine(path / "org", "")
        self.engines.update({"here": self.here, "": self.org})


@pytest.fixture
def harness(tmp_path: Path) -> LedgerHarness:
    return LedgerHarness(tmp_path)


A, B, C, D = (f"workload/shop/{name}" for name in "abcd")


async def test_steps_are_taken_in_the_order_of_the_plan(harness: LedgerHarness) -> None:
    outcomes = await harness.run(
        plan(
            step("gvc/shop", ""),
            step(A, waits_for=["gvc/shop@"]),
            step(B, waits_for=[A]),
            step("secret/gone", "", action=Action.DELETE, waits_for=[f"{B}@here"]),
        )
    )
    assert ends(outcomes) == {"gvc/shop": "applied", A: "applied", B: "applied", "secret/gone": "applied"}
    assert harness.here.performed() == [f"create {A}", f"create {B}"]
    assert harness.org.performed() == ["create gvc/shop", "delete secret/gone"]
    assert harness.records.journal.open() == []


@settings(max_examples=examples(25), deadline=None)
@given(graph=graphs(), bad=st.sets(st.integers(0, 11), max_size=3))
def test_a_failure_holds_back_only_what_waits_for_it(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, bad: set[int]
) -> None:
    harness = LedgerHarness(tmp_path_factory.mktemp("stage"))
    names = [f"workload/shop/w{at}" for at in range(len(graph))]
    harness.here.refuse = {names[at] for at in bad if at < len(graph)}
    steps = [step(names[at], waits_for=[names[one] for one in ones]) for at, ones in enumerate(graph)]
    results = ends(asyncio.run(harness.run(plan(*steps))))
    undone: set[str] = set()
    for name, ones in zip(names, graph, strict=True):
        if undone & {names[one] for one in ones}:
            assert results[name] == "skipped/DependencyFailed"
            undone.add(name)
        elif name in harness.here.refuse:
            assert results[name] == "failed/Refused"
            undone.add(name)
        else:
            assert results[name] == "applied"
    assert set(harness.recorded()) == set(names) - undone
    performed = [line.partition(" ")[2] for line in harness.here.performed()]
    for name, ones in zip(names, graph, strict=True):
        for one in ones if name in performed else ():
            assert performed.index(names[one]) < performed.index(name)


async def test_as_many_steps_are_in_flight_as_the_engine_and_the_executor_allow(tmp_path: Path) -> None:
    steps = [step(f"workload/shop/w{n}") for n in range(20)]
    harness = LedgerHarness(tmp_path / "wide")
    await harness.run(plan(*steps))
    assert harness.here.most == harness.here.parallel == 4
    narrow = LedgerHarness(tmp_path / "narrow", parallel=2)
    await narrow.run(plan(*steps))
    assert narrow.here.most == 2
    assert len(narrow.recorded()) == 20


async def test_an_applied_step_is_recorded_with_its_event(harness: LedgerHarness) -> None:
    await harness.run(plan(step("workload/shop/a", version=3, body={"spec": 1})))
    (record,) = harness.records.applied.get(A)
    assert (record.version, record.source, record.revision) == (3, "main", "main@sha1:abc")
    assert (record.body, record.digest, record.health) == (b'{"spec": 1}', "digest-3", Health.HEALTHY)
    assert record.applied_at == harness.clock.now()
    (event,) = harness.records.events.list()
    assert (event.type, event.reason, event.message) == ("Normal", "Created", "created at here, version 3")
    assert harness.records.status_queue.take("main").keys == [A]
    await harness.run(plan(step(A, action=Action.DELETE)))
    assert harness.records.applied.get(A) == ()
    assert harness.records.events.list()[-1].message == "deleted at here"


async def test_an_event_names_changed_fields_and_never_their_values(harness: LedgerHarness) -> None:
    await harness.run(plan(step(A)))
    paths = ("spec.a", "spec.b", "spec.c", "spec.d", "spec.e")
    changes = tuple(FieldChange(path, "hush", {"deep": ["hush", None]}, ChangeClass.IN_PLACE) for path in paths)
    update = msgspec.structs.replace(step(A, action=Action.UPDATE, version=2), changes=changes)
    await harness.run(plan(update))
    assert harness.records.events.list()[-1].message == "updated at here, version 2: spec.a, spec.b, spec.c and 2 more"


async def test_transient_failures_are_retried_with_backoff(harness: LedgerHarness) -> None:
    harness.here.fail = {A: 2}
    assert ends(await harness.run(plan(step(A), step(B)))) == {A: "applied", B: "applied"}
    assert 0 < sum(harness.time.slept) <= 1 + 2
    assert harness.records.failures.all() == []


async def test_each_call_of_an_engine_is_counted_with_its_result(harness: LedgerHarness) -> None:
    harness.here.fail, harness.here.bug = {A: 2}, {C}
    executor = harness.executor()
    forget_logged()
    await executor.run(plan(step(A), step(B), step(C)), 1, lambda: False)
    assert executor.calls == {
        ("here", "create", ""): 2,
        ("here", "create", "ExecFailed"): 2,
        ("here", "create", "InternalError"): 1,
    }


async def test_when_the_tries_are_used_up_the_failure_is_recorded_and_the_wait_grows(harness: LedgerHarness) -> None:
    harness.here.fail = {A: 1000}
    bounds = []
    for round_ in range(1, 9):
        assert ends(await harness.run(plan(step(A), step(B, waits_for=[A])))) == {
            A: "failed/ExecFailed",
            B: "skipped/DependencyFailed",
        }
        (failure,) = harness.records.failures.get(A)
        assert failure.attempts == round_
        assert failure.message == "the ledger is out of ink"
        bounds.append(failure.next_attempt - harness.clock.now())
    assert all(0 <= wait <= min(60, 2**n) for n, wait in enumerate(bounds))
    assert max(bounds[4:]) > 2
    assert harness.here.fail[A] == 1000 - 8 * 3
    harness.here.fail = {}
    await harness.run(plan(step(A)))
    assert harness.records.failures.all() == []


async def test_a_step_that_fails_the_same_way_again_and_again_does_not_flood_the_events(harness: LedgerHarness) -> None:
    harness.here.refuse = {A}
    for _ in range(20):
        await harness.run(plan(step(A)))
    assert [event.type for event in harness.records.events.list()] == ["Warning"] * 3  # the first, the 10th, the 20th
    harness.here.refuse, harness.here.bug = set(), {A}
    await harness.run(plan(step(A)))
    assert harness.records.events.list()[-1].reason == "InternalError"


async def test_a_permanent_failure_is_not_retried(harness: LedgerHarness) -> None:
    harness.here.refuse = {A}
    (outcome,) = await harness.run(plan(step(A)))
    assert (outcome.reason, outcome.message, outcome.retry) == ("Refused", "the ledger refuses", False)
    assert harness.time.slept == []
    assert not harness.records.failures.get(A)[0].retry


async def test_a_bug_in_an_engine_fails_its_own_step_only_and_reveals_no_secrets(harness: LedgerHarness) -> None:
    forget_logged()
    harness.here.bug = {A}
    executor = harness.executor()
    with capture_logs() as logged:
        first, second = await executor.run(plan(step(A), step(B)), 1, lambda: False)
    assert (first.reason, str(second.result)) == ("InternalError", "applied")
    assert "KeyError at reconciler/" in first.message
    assert "secret text" not in first.message
    assert [(each["event"], each["error"]) for each in logged] == [("bug", "KeyError")]


async def test_steps_on_hold_and_their_dependents_wait_while_the_rest_runs(harness: LedgerHarness) -> None:
    outcomes = await harness.run(
        plan(
            step(A, action=Action.DELETE, hold=Hold.VOLUMES),
            step(B, waits_for=[A]),
            step(C, waits_for=[B]),
            step(D),
        )
    )
    assert ends(outcomes) == {
        A: "waiting/ApprovalRequired",
        B: "waiting/DependencyWaiting",
        C: "waiting/DependencyWaiting",
        D: "applied",
    }
    assert "reconciler approve held-digest" in outcomes[0].message
    assert outcomes[2].message == f"waits for {B}@here, which waits too"
    assert set(harness.records.status_queue.take("main").keys) == {B, C, D}, "a delete that waits is news of the run"
    assert harness.records.failures.all() == []


@pytest.mark.parametrize("good", [Health.HEALTHY, Health.RECORDED])
async def test_a_step_waits_until_what_it_needs_is_healthy_or_recorded(harness: LedgerHarness, good: Health) -> None:
    harness.here.unhealthy = {A}
    planned = plan(
        step(A), step(B, waits_for=[A], needs_healthy=[A]), step(C, waits_for=[B]), step(D, needs_healthy=["secret/x"])
    )
    assert ends(await harness.run(planned)) == {
        A: "applied",
        B: "waiting/DependencyNotHealthy",
        C: "waiting/DependencyWaiting",
        D: "waiting/DependencyNotHealthy",
    }
    harness.records.applied.update_seen(A, "here", good, b"{}")
    assert ends(await harness.run(plan(step(B, needs_healthy=[A])))) == {B: "applied"}


async def test_dependents_begin_after_a_step_that_ends_healthy(harness: LedgerHarness) -> None:
    planned = plan(step(A), step(B, waits_for=[A], needs_healthy=[A]))
    assert ends(await harness.run(planned)) == {A: "applied", B: "applied"}


async def test_a_step_at_a_location_without_an_engine_waits_and_names_the_location(harness: LedgerHarness) -> None:
    outcomes = await harness.run(plan(step(A, "mars"), step(B, waits_for=[f"{A}@mars"])))
    assert ends(outcomes) == {A: "waiting/LocationNotBound", B: "waiting/DependencyWaiting"}
    assert "mars" in outcomes[0].message


async def test_once_preempted_nothing_new_begins_and_what_is_in_flight_ends(harness: LedgerHarness) -> None:
    async def story() -> dict[str, str]:
        harness.here.gate = asyncio.Event()
        newer = asyncio.Event()
        steps = [step(f"workload/shop/w{n}") for n in range(6)]
        running = asyncio.create_task(harness.run(plan(*steps), newer.is_set))
        while harness.here.in_flight < 4:
            await asyncio.sleep(0)
        newer.set()
        harness.here.gate.set()
        return ends(await running)

    found = await story()
    assert [found[f"workload/shop/w{n}"] for n in range(6)] == ["applied"] * 4 + ["waiting/Preempted"] * 2
    assert len(harness.recorded()) == 4
    assert harness.records.journal.open() == []


async def test_preemption_ends_the_wait_between_two_tries(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path, auto=False)
    harness.here.fail = {A: 5}

    async def story() -> dict[str, str]:
        newer = asyncio.Event()
        running = asyncio.create_task(harness.run(plan(step(A)), newer.is_set))
        while not harness.time.slept:
            await asyncio.sleep(0)
        newer.set()
        await harness.time.advance(1)
        assert running.done()
        return ends(await running)

    assert await story() == {A: "failed/ExecFailed"}
    assert harness.here.fail[A] == 4


async def test_a_cancelled_run_leaves_its_journal_to_the_next(harness: LedgerHarness) -> None:
    async def story() -> None:
        harness.here.gate = asyncio.Event()
        running = asyncio.create_task(harness.run(plan(step(A), step(B))))
        while harness.here.in_flight < 2:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert harness.here.in_flight == 0

    await story()
    assert harness.recorded() == {}
    assert [row.key for row in harness.records.journal.open()] == [A, B]
    harness.here.gate = None
    assert ends(await harness.executor().replay()) == {A: "applied", B: "applied"}
    assert harness.records.journal.open() == []


async def test_a_workload_that_finds_a_place_leaves_its_placeless_record_behind(harness: LedgerHarness) -> None:
    await harness.run(plan(step(A, "")))
    assert harness.recorded() == {}
    await harness.run(plan(step(A, "here")))
    assert [record.location for record in harness.records.applied.get(A)] == ["here"]


async def test_a_step_is_durable_before_it_is_performed_and_recorded_with_its_outcome(harness: LedgerHarness) -> None:
    other = ExecutorHarness(harness.records.path.parent, harness.clock) if harness.records.path else harness
    seen: list[tuple[list[str], list[str]]] = []

    def record(_key: str) -> None:
        journaled = [row.key for row in other.records.journal.open()]
        seen.append((journaled, sorted(other.recorded())))

    harness.here.before = record
    await harness.run(plan(step(A), step(B, waits_for=[A])))
    assert seen == [([A], []), ([B], [A])]


def test_many_steps_share_a_few_transactions(harness: LedgerHarness) -> None:
    harness.here.parallel = harness.parallel = 100
    assert _commits(harness, plan(*(step(f"workload/shop/w{n}") for n in range(300)))) <= 10


def test_one_step_costs_two_transactions(harness: LedgerHarness) -> None:
    assert _commits(harness, plan(step(A))) == 2


def test_an_empty_plan_costs_nothing(harness: LedgerHarness) -> None:
    assert _commits(harness, plan()) == 0


def _commits(harness: LedgerHarness, planned: Plan) -> int:
    statements: list[str] = []
    harness.records._database._connection.set_trace_callback(statements.append)
    asyncio.run(harness.run(planned))
    return statements.count("COMMIT")


def test_a_full_disk_stops_the_run_cleanly_and_replay_repairs_the_records(tmp_path: Path) -> None:
    harness = LedgerHarness(tmp_path)
    harness.here.parallel = harness.parallel = 20
    planned = plan(*(step(f"workload/shop/w{n:03}", body={"filling": "x" * 4000}) for n in range(200)))
    database = harness.records._database
    database.value(f"PRAGMA max_page_count = {database.value('PRAGMA page_count') + 60}")
    with pytest.raises(DiskFull):
        asyncio.run(harness.run(planned))
    assert harness.here.in_flight == 0
    recorded, performed = set(harness.recorded()), set(harness.here.resources())
    assert 0 < len(recorded) < len(performed) < 200
    journaled = {row.key for row in harness.records.journal.open()}
    assert performed <= recorded | journaled
    database.value("PRAGMA max_page_count = 1000000")
    assert all(str(outcome.result) == "applied" for outcome in asyncio.run(harness.executor().replay()))
    assert set(harness.recorded()) == set(harness.here.resources()) >= performed
    assert all(str(outcome.result) == "applied" for outcome in asyncio.run(harness.run(planned)))
    assert len(harness.recorded()) == 200
