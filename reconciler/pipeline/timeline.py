"""What happened in a run, as the records keep it, and as notifications report it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.engines.protocol import Outcome, Result
from reconciler.model.revision import Revision
from reconciler.notifications.message import MessageResource
from reconciler.notifications.outcomes import (
    MOST_RESOURCES,
    PARTIAL,
    RUNNING,
    RunNotice,
    digest_failures,
    list_gvcs,
    list_keys,
    record_notice,
)
from reconciler.pipeline.report import Report
from reconciler.planning.plan import Plan, Step
from reconciler.records.store import Records
from reconciler.records.tables.runs import Phase, Timeline
from reconciler.settings import Settings
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


_WORST_FIRST = {Result.FAILED: 0, Result.WAITING: 1, Result.SKIPPED: 2}


class NoticeWriter:
    """Writes notices about runs; writes nothing if the settings have no notifications. Raises RecordsError."""

    def __init__(self, settings: Settings, records: Records) -> None:
        self._records = records
        self._is_on = settings.notifications is not None

    def begin(self, source: str, revision: Revision, plan: Plan) -> None:
        """Write that the steps of ``plan`` begin."""
        if self._is_on and plan.steps:
            notice = RunNotice(
                source,
                str(revision),
                RUNNING,
                plan.digest,
                gvcs=list_gvcs(step.key for step in plan.steps),
                keys=list_keys(step.key for step in plan.steps),
                author=revision.author,
                subject=revision.subject,
            )
            record_notice(self._records, notice)

    def end(self, ended: Report, revision: Revision | None, plan: Plan | None, outcomes: Sequence[Outcome]) -> None:
        """Write how a run ended: ``outcomes`` are those of the steps of ``plan``."""
        if not self._is_on:
            return
        steps = plan.steps if plan is not None else ()
        left = [pair for pair in zip(steps, outcomes, strict=True) if pair[1].result is not Result.APPLIED]
        left.sort(key=lambda pair: _WORST_FIRST[pair[1].result])
        shown = [_describe_step(step, outcome) for step, outcome in left[:MOST_RESOURCES]]
        errors = ended.findings[:MOST_RESOURCES]
        notice = RunNotice(
            ended.source,
            ended.revision,
            PARTIAL if ended.skipped_files else ended.outcome,
            ended.digest,
            ended.hold_digest if not ended.refusal else "",
            sum(step.hold.approvable for step in steps) if ended.hold_digest and not ended.refusal else 0,
            ended.counts,
            _first_reason(ended),
            digest_failures((str(one.id.key), str(one.reason)) for _, one in left if one.result is Result.FAILED),
            tuple(shown),
            tuple(errors),
            len(left) - len(shown) + len(ended.findings) - len(errors),
            list_gvcs(step.key for step in steps),
            list_keys(step.key for step in steps),
            revision.author if revision is not None else "",
            revision.subject if revision is not None else "",
        )
        record_notice(self._records, notice)


def _describe_step(step: Step, outcome: Outcome) -> MessageResource:
    return MessageResource(str(step.key), str(step.action), step.location, str(outcome.reason), outcome.message)


def _first_reason(ended: Report) -> str:
    if ended.skipped_files:
        return ended.skipped_files
    if ended.outcome == "failed" and ended.not_applied:
        return ended.not_applied[0]
    return ended.message
