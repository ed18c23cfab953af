"""What happened in a run, as the records keep it."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.records.store import Records
from reconciler.records.tables.runs import Phase, Timeline
from reconciler.tracing import RunTrace, TraceSpan, read_run

MOST_STEPS, MOST_FAILED = 200, 50
"""The first tries of steps that are kept of a run, and those among the others that failed."""
_STEP = "step"
_SECOND = 1_000_000_000


def record_timeline(records: Records, run: int) -> None:
    """Record what happened so far in the run of this task, the ``run`` of the records. Raises RecordsError."""
    trace, trace_id = read_run()
    if trace is not None:
        records.timelines.put(run, make_timeline(trace, trace_id))


def make_timeline(trace: RunTrace, trace_id: str) -> Timeline:
    """The phases of ``trace``, and its first tries of steps; of very many, those that failed too."""
    phases = [_make_phase(trace, span) for span in _select_spans(trace)]
    return Timeline(trace_id, phases, len(trace.spans) - 1 - len(phases) + trace.dropped)


def _select_spans(trace: RunTrace) -> Iterator[TraceSpan]:
    steps = failed = 0
    for span in trace.spans[1:]:
        if span.name != _STEP or steps < MOST_STEPS:
            steps += span.name == _STEP
            yield span
        elif _read_result(span) != "ok" and failed < MOST_FAILED:
            failed += 1
            yield span


def _make_phase(trace: RunTrace, span: TraceSpan) -> Phase:
    start = trace.spans[0].begin
    action, key, location = (
        str(span.attributes.get(f"reconciler.{name}", "")) for name in ("action", "key", "location")
    )
    begin, seconds = (span.begin - start) / _SECOND, max(0, span.end - span.begin) / _SECOND
    return Phase(span.name, round(begin, 6), round(seconds, 6), _read_result(span), action, key, location)


def _read_result(span: TraceSpan) -> str:
    """``ok``, or why it failed: the reason of an engine, or the kind of an error."""
    failure = str(span.attributes.get("error.type", "failed")) if span.failed else "ok"
    return str(span.attributes.get("reconciler.result", failure))
