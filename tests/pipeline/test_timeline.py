"""The timeline of a run: what is recorded of it, and how much at most."""

from __future__ import annotations

import msgspec
import pytest

from reconciler import tracing
from reconciler.pipeline import timeline
from reconciler.pipeline.timeline import make_timeline
from reconciler.queries.history import describe_run
from reconciler.records.store import Records
from reconciler.records.tables import runs
from reconciler.records.tables.runs import Phase, Timeline


def record_steps(*results: str) -> tracing.RunTrace:
    """The trace of a run with a phase, and a try of a step for each of ``results``."""
    tracing.begin_run()
    with tracing.record_span("load"):
        pass
    for number, result in enumerate(results):
        with tracing.record_span(
            "step", **{"reconciler.key": f"gvc/g{number}", "reconciler.action": "create"}
        ) as facts:
            facts["reconciler.result"] = result
    trace, _ = tracing.read_run()
    assert trace is not None
    return trace


def test_phases_and_tries_of_steps_are_in_order_with_their_results() -> None:
    whole = make_timeline(record_steps("EngineFailed", "ok"), "")
    assert [(phase.name, phase.key, phase.result) for phase in whole.phases] == [
        ("load", "", "ok"),
        ("step", "gvc/g0", "EngineFailed"),
        ("step", "gvc/g1", "ok"),
    ]
    assert whole.left_out == 0
    begins = [phase.begin for phase in whole.phases]
    assert begins == sorted(begins)
    assert all(phase.seconds >= 0 for phase in whole.phases)


def test_of_many_steps_the_first_stay_and_those_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_STEPS", 3)
    monkeypatch.setattr(timeline, "MOST_FAILED", 2)
    whole = make_timeline(record_steps(*["ok"] * 6, "EngineFailed", "ok", "EngineFailed", "EngineFailed"), "")
    assert [phase.key for phase in whole.phases[1:]] == ["gvc/g0", "gvc/g1", "gvc/g2", "gvc/g6", "gvc/g8"]
    assert whole.left_out == 5


def test_a_phase_that_an_error_ends_has_its_kind() -> None:
    tracing.begin_run()
    with pytest.raises(KeyError), tracing.record_span("plan"):
        raise KeyError("hunter2-canary")
    trace, _ = tracing.read_run()
    assert trace is not None
    (phase,) = make_timeline(trace, "").phases
    assert (phase.name, phase.result) == ("plan", "KeyError")
    assert b"hunter2-canary" not in msgspec.msgpack.encode(phase)


def test_the_newest_runs_have_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEEP_TIMELINES", 3)
    records = Records.open(None)
    timeline_of_all = Timeline("", [Phase("load", 0.0, 1.0)])
    numbers = [records.runs.start("main", f"main@sha1:{number}", "poll") for number in range(5)]
    for number in numbers:
        records.timelines.put(number, timeline_of_all)
    assert [records.timelines.get(number) is not None for number in numbers] == [False, False, True, True, True]
    assert describe_run(records, numbers[-1]).timeline == timeline_of_all
    assert describe_run(records, numbers[0]).timeline is None
    records.close()


def test_the_timeline_of_a_run_that_is_folded_goes_with_it() -> None:
    records = Records.open(None)
    numbers = []
    for _ in range(2):
        number = records.runs.start("main", "main@sha1:c0ffee", "poll")
        records.runs.finish(number, "waiting", "digest", {"waiting": 1})
        records.timelines.put(number, Timeline("", []))
        records.runs.fold(number)
        numbers.append(number)
    assert [records.timelines.get(number) is None for number in numbers] == [True, False]
    records.close()
