"""When probes run and which verdicts they give, as pure functions and by the prober."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from reconciler.engines.host.decisions.replica import ReplicaContainer
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.probes.state import ProbeKind, Verdict, apply_result, make_initial_state, next_due
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.errors import EngineError
from reconciler.model import key
from reconciler.model.kinds.workload import Command, Probe
from reconciler.reasons import Reason
from tests.support.buggy import forget_logged
from tests.support.cases import cases
from tests.support.clock import FakeClock

PLACE = ContainerId(key.Key(key.Kind.WORKLOAD, "shop", "web"), "web-1", "main")
HALF = 0.5


def probe_of(case: dict[str, Any]) -> Probe:
    """The probe of a case, by a program."""
    return msgspec.convert({**case.get("probe", {}), "exec": {"command": ["check"]}}, Probe)


def answering(case: dict[str, Any]) -> Callable[[float], bool | None]:
    """How the container of a case answers at a time."""
    times = [time for time, _ in case["answers"]]
    return lambda now: case["answers"][bisect.bisect_right(times, now) - 1][1]


@pytest.mark.parametrize("case", cases("probes/paces.yaml"))
def test_a_probe_runs_and_gives_verdicts_at_the_expected_times(case: dict[str, Any]) -> None:
    probe, well = probe_of(case), answering(case)
    state = make_initial_state(ProbeKind(case["kind"]), case.get("ready", False))
    now, asked, verdicts = float(case.get("from", 0)), [], []
    while (now := max(next_due(probe, state, 0.0, now, HALF), now)) <= case["until"]:
        asked.append(now)
        before, state = state, apply_result(probe, state, well(now), now)
        if state.verdict is not None and state.verdict is not before.verdict:
            verdicts.append([now, state.verdict])
        if case["kind"] == "liveness" and state.verdict is False:
            break
    assert asked == pytest.approx(case["asked"])
    assert verdicts == [[pytest.approx(at), verdict] for at, verdict in case["verdicts"]]


class ScriptedRuntime:
    """Executes nothing: a program succeeds or fails as the case sets for the time."""

    def __init__(self, clock: FakeClock, well: Callable[[float], bool | None]) -> None:
        self.clock = clock
        self.well = well
        self.asked: list[float] = []

    def find_processes(self, place: ContainerId) -> frozenset[int]:
        """None are known."""
        return frozenset()

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """As Runtime.exec."""
        assert (place, tuple(argv), timeout) == (PLACE, ("check",), 1)
        self.asked.append(self.clock.monotonic())
        well = self.well(self.clock.monotonic())
        if well is None:
            raise EngineError("A secret.", reason=Reason.EXEC_FAILED)
        return ExecResult(0 if well else 1, "a password")


class VerdictRecorder:
    """The verdicts of a prober, and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.verdicts: list[list[object]] = []

    def record(self, verdict: Verdict) -> None:
        """As OnVerdict."""
        assert verdict.place == PLACE
        assert verdict.message in ([""] if verdict.ok else ["exit code 1", "not asked: ExecFailed"])
        self.verdicts.append([self.clock.monotonic(), verdict.kind.value, verdict.ok])


FRESH = [case for case in cases("probes/paces.yaml") if "from" not in case.values[0]]


@pytest.mark.parametrize("case", FRESH)
async def test_a_prober_follows_the_pure_functions(case: dict[str, Any]) -> None:
    clock = FakeClock()
    runtime, listener = ScriptedRuntime(clock, answering(case)), VerdictRecorder(clock)
    prober = Prober(runtime, clock, listener.record)
    prober.watch(PLACE, ContainerSpec("main", **{case["kind"]: probe_of(case)}), {}, ReplicaContainer("main"))
    await clock.advance(case["until"])
    assert runtime.asked == pytest.approx(case["asked"])
    assert listener.verdicts == [[pytest.approx(at), case["kind"], verdict] for at, verdict in case["verdicts"]]
    await prober.close()


def watching(
    well: Callable[[float], bool | None], seen: ReplicaContainer, probe: Probe
) -> tuple[FakeClock, ScriptedRuntime, VerdictRecorder, Prober]:
    """A prober that watches one container for both its probes."""
    clock = FakeClock()
    runtime, listener = ScriptedRuntime(clock, well), VerdictRecorder(clock)
    prober = Prober(runtime, clock, listener.record)
    prober.watch(PLACE, ContainerSpec("main", readiness=probe, liveness=probe), {}, seen)
    return clock, runtime, listener, prober


CHECK = Probe(exec=Command(("check",)), failure_threshold=2)


async def test_a_prober_that_begins_anew_keeps_the_verdict_until_it_knows_better() -> None:
    seen = ReplicaContainer("main", started=-1000.0, ready=True)
    clock, runtime, listener, prober = watching(lambda now: now < 40, seen, CHECK)
    await clock.advance(40)
    assert len(runtime.asked) == 8
    assert all(at <= 10 for at in runtime.asked[:2]), "each probe asks within its first period"
    assert runtime.asked[0] != runtime.asked[1], "not all of them ask at once"
    assert listener.verdicts == []
    await clock.advance(30)
    assert sorted(verdict[1:] for verdict in listener.verdicts) == [["liveness", False], ["readiness", False]]
    await prober.close()


async def test_a_forgotten_container_gets_no_verdict() -> None:
    clock, runtime, listener, prober = watching(lambda now: False, ReplicaContainer("main"), CHECK)
    await clock.advance(5)
    prober.forget(PLACE)
    prober.forget(PLACE)
    asked = list(runtime.asked)
    await clock.advance(100)
    assert (runtime.asked, listener.verdicts) == (asked, [])
    await prober.close()


async def test_a_container_that_starts_again_is_watched_from_its_start() -> None:
    clock, runtime, listener, prober = watching(lambda now: now < 95, ReplicaContainer("main"), CHECK)
    await clock.advance(95)
    runtime.asked.clear()
    prober.watch(PLACE, ContainerSpec("main", liveness=CHECK), {}, ReplicaContainer("main", started=95.0))
    await clock.advance(30)
    assert runtime.asked == pytest.approx([95, 105])
    assert listener.verdicts == [[0, "readiness", True], [pytest.approx(105), "liveness", False]]
    await prober.close()


async def test_closing_ends_every_task() -> None:
    _, _, _, prober = watching(lambda now: True, ReplicaContainer("main"), CHECK)
    await asyncio.sleep(0)
    await prober.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class UnstoppableRuntime(ScriptedRuntime):
    """A runtime that loses one cancellation, as one below it may; it answers after a second."""

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """As Runtime.exec."""
        with contextlib.suppress(asyncio.CancelledError):
            await self.clock.sleep(1)
        return await super().exec(container_id, argv, timeout)


async def test_a_probe_of_a_former_start_has_no_effect_even_where_its_cancellation_is_lost() -> None:
    clock = FakeClock()
    runtime, listener = UnstoppableRuntime(clock, lambda now: False), VerdictRecorder(clock)
    prober = Prober(runtime, clock, listener.record)
    impatient = Probe(exec=Command(("check",)), failure_threshold=1)
    prober.watch(PLACE, ContainerSpec("main", liveness=impatient), {}, ReplicaContainer("main"))
    await clock.advance(0.5)
    prober.watch(PLACE, ContainerSpec("main"), {}, ReplicaContainer("main", started=0.5))
    await clock.advance(100)
    assert (len(runtime.asked), listener.verdicts) == (1, [])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await prober.close()


class FaultyRuntime(ScriptedRuntime):
    """A runtime with a bug that is met at the first three questions."""

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """As Runtime.exec."""
        result = await super().exec(place, argv, timeout)
        if len(self.asked) <= 3:
            raise KeyError("a password")
        return result


async def test_a_bug_is_logged_once_and_the_probe_goes_on() -> None:
    forget_logged()

    async def scenario() -> None:
        clock = FakeClock()
        runtime, listener = FaultyRuntime(clock, lambda now: True), VerdictRecorder(clock)
        prober = Prober(runtime, clock, listener.record)
        prober.watch(PLACE, ContainerSpec("main", readiness=CHECK), {}, ReplicaContainer("main"))
        await clock.advance(60)
        assert all(after - before >= 10 for before, after in itertools.pairwise(runtime.asked[:4])), "never in a rush"
        assert listener.verdicts == [[pytest.approx(runtime.asked[3]), "readiness", True]]
        await prober.close()

    with capture_logs() as logged:
        await scenario()
    assert [(each["part"], each["error"]) for each in logged] == [(f"readiness probe of {PLACE}", "KeyError")]


PROBES = st.builds(
    Probe,
    initial_delay_seconds=st.integers(0, 120),
    period_seconds=st.integers(1, 60),
    timeout_seconds=st.just(1),
    success_threshold=st.integers(1, 20),
    failure_threshold=st.integers(1, 20),
)


@given(PROBES, st.sampled_from(ProbeKind), st.booleans(), st.lists(st.booleans(), max_size=60), st.floats(0, 1))
def test_verdicts_rest_on_as_many_answers_as_are_asked_for(
    probe: Probe, kind: ProbeKind, good: bool, answers: list[bool], spread: float
) -> None:
    state = make_initial_state(kind, good)
    now, before, failed = 0.0, state, []
    for ok in answers:
        due = next_due(probe, state, 0.0, now, spread)
        assert due >= now, "a question that was answered at once is never due at once again"
        now, before = due, state
        state = apply_result(probe, state, ok, now)
        failed = [*failed, now] if not ok else []
        if state.verdict is True and before.verdict is not True:
            assert ok
            assert state.successes == probe.success_threshold
        if state.verdict is False and before.verdict is not False:
            assert failed[-1] - failed[0] >= (probe.failure_threshold - 1) * probe.period_seconds - 1e-6


@given(PROBES, st.booleans(), st.floats(0, 1e7))
def test_regular_probes_run_at_tenths_of_a_second_so_that_they_share_them(probe: Probe, ok: bool, asked: float) -> None:
    state = apply_result(probe, make_initial_state(ProbeKind.LIVENESS, good=True), ok, asked)
    due = next_due(probe, state, 0.0, asked)
    assert due == round(due * 10) / 10
    assert due == pytest.approx(asked + probe.period_seconds, abs=0.0501)
    late = apply_result(probe, state, ok, due + 0.04)
    assert next_due(probe, late, 0.0, due + 0.04) == pytest.approx(due + probe.period_seconds), "no tick is lost"
