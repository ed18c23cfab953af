"""Sets conditions and events of a source from the results of its runs; unchanged conditions are not written."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.clock import Clock
from reconciler.errors import InternalError, SourceError
from reconciler.model.finding import Severity
from reconciler.model.revision import Revision, shorten_id
from reconciler.pipeline import report
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.report import Report
from reconciler.pipeline.timeline import NoticeWriter, record_timeline
from reconciler.planning.plan import Plan
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.runs import REFUSED, Run
from reconciler.records.tables.suspensions import source_target
from reconciler.render.findings import format_place
from reconciler.settings import Settings
from reconciler.status.conditions import condition_from_error, make_condition

MAX_EVENTS = 100
"""The most findings of a refused revision that become events; its condition has the count of all."""

RECOVERS_FROM = frozenset({Reason.INTERNAL_ERROR, Reason.INVALID_REVISION, Reason.INVALID_FILES})
"""Reasons of the condition Ready: the end of each is an event."""

REACHABLE = make_condition(ConditionType.SOURCE_REACHABLE, True, Reason.FETCHED)


class SourceConditions:
    """Writes conditions and events of sources. Every method raises RecordsError."""

    def __init__(self, records: Records, settings: Settings, clock: Clock) -> None:
        self._records = records
        self._settings = settings
        self._clock = clock
        self.read_at: dict[str, float] = {}
        """When each source was last read (seconds since the epoch)."""
        self._skipped_files: dict[str, str] = {}
        self._bugs: set[tuple[str, str]] = set()
        self._notices = NoticeWriter(settings, records)

    def after_run(self, name: str, prepared: PlannedRevision, ended: Report, reason: str) -> None:
        """Record the result of a run of the source ``name``, made for ``reason``."""
        refused = ended.outcome == REFUSED
        # A run with steps has written how it ended, with its outcomes.
        has_steps = prepared.plan is not None and bool(prepared.plan.steps)
        if refused:
            with self._records.transaction():
                number = self._records.runs.append_failed(_failed_run(ended, reason, prepared.revision))
                is_new = number > 0
                if is_new:
                    record_timeline(self._records, number)
                    self._notices.end(ended, prepared.revision, None, ())
        else:
            is_new = bool(ended.skipped_files) and self._skipped_files.get(name) != ended.revision
        self._skipped_files[name] = ended.revision if ended.skipped_files else ""
        if is_new:
            why = Reason.INVALID_REVISION if refused else Reason.INVALID_FILES
            self.append_events(_list_invalid_events(name, why, prepared, ended))
        if not refused and not has_steps:
            self._notices.end(ended, prepared.revision, prepared.plan, ())
        fresh = self.set(name, REACHABLE, _compute_ready_condition(ended))
        plan = prepared.plan
        if plan is not None and plan.hold_digest and not plan.refusal and ConditionType.READY in fresh:
            self.append_events([_approval_required(name, plan)])

    def unreadable(self, name: str, error: SourceError, reason: str) -> None:
        """Record that no revision of the source ``name`` could be read for a run made for ``reason``."""
        before = self._of(name).get(ConditionType.SOURCE_REACHABLE)
        # A source that stays unreachable fails every poll: only a new reason is worth a run in the list.
        if before is None or before.status or before.reason != error.reason:
            self._records.runs.append_failed(_failed_run(report.make_unreadable_report(name, error), reason))
        self.set(name, condition_from_error(ConditionType.SOURCE_REACHABLE, error))
        conditions = self._records.conditions.get(name)
        since = next(
            scope_condition.since
            for scope_condition in conditions
            if scope_condition.type == ConditionType.SOURCE_REACHABLE
        )
        if self._clock.now() - since >= self._settings.stale:
            message = f"no revision could be read for longer than {self._settings.stale:.0f} s"
            self.set(name, make_condition(ConditionType.SOURCE_STALE, True, error.reason, message))

    def internal_error(self, name: str, bug: InternalError, run: Report, reason: str) -> None:
        """Record that a bug ended the ``run`` of the source ``name`` that was made for ``reason``."""
        with self._records.transaction():
            self._records.runs.append_failed(_failed_run(run, reason))
            self._notices.end(run, None, None, ())
        self.set(name, condition_from_error(ConditionType.READY, bug))

    def append_bug(self, part: str, bug: InternalError) -> None:
        """Append the event of a bug outside any source, once for each place, since it may recur every second."""
        if (part, bug.place) not in self._bugs:
            self._bugs.add((part, bug.place))
            self.append_events([NewEvent("", bug.reason, f"{part}: {bug}")])

    def set(self, name: str, *current: Condition) -> set[str]:
        """Write the changed conditions, and return their types.

        An unreadable source, a bug that ended its run, and the recovery from either become events.
        """
        if REACHABLE in current:
            self.read_at[name] = self._clock.now()
        conditions = self._of(name)
        fresh = [change for change in current if conditions.get(change.type) != change]
        stale = conditions.get(ConditionType.SOURCE_STALE)
        if REACHABLE in fresh and stale is not None and stale.status:
            # A source is no longer stale once it can be read, whatever it contains.
            fresh.append(make_condition(ConditionType.SOURCE_STALE, False, Reason.FETCHED))
        if not fresh:
            return set()
        events = [
            event for change in fresh for event in _list_condition_events(name, conditions.get(change.type), change)
        ]
        with self._records.transaction():
            for change in fresh:
                self._records.conditions.set(name, change)
            if events:
                self.append_events(events)
        return {change.type for change in fresh}

    def _of(self, name: str) -> dict[str, Condition]:
        return {
            scope_condition.type: scope_condition.condition for scope_condition in self._records.conditions.get(name)
        }

    def append_events(self, events: Iterable[NewEvent]) -> None:
        """Append ``events`` and trim the oldest: the next applied run, which also trims, may be far off."""
        with self._records.transaction():
            self._records.events.append_many(events)
            self._records.events.trim(self._settings.events.keep)


def _compute_ready_condition(ended: Report) -> Condition:
    if ended.outcome == REFUSED:
        return make_condition(ConditionType.READY, False, Reason.INVALID_REVISION, ended.message)
    obstacles: list[tuple[Reason, str]] = []
    if ended.skipped_files:
        obstacles.append((Reason.INVALID_FILES, f"files with errors stay as they were: {ended.skipped_files}"))
    if ended.refusal:
        obstacles.append((Reason.APPROVAL_REFUSED, f"what waits was {ended.refusal}"))
    elif ended.hold_digest:
        obstacles.append(
            (Reason.APPROVAL_REQUIRED, f"approve what waits: reconciler approve {shorten_id(ended.hold_digest)}")
        )
    elif ended.outcome in ("failed", "waiting"):
        reason = Reason.STEPS_FAILED if ended.outcome == "failed" else Reason.STEPS_WAITING
        obstacles.append((reason, ended.not_applied[0] if ended.not_applied else ended.message))
    if not obstacles:
        return make_condition(ConditionType.READY, True, Reason.APPLIED)
    return make_condition(ConditionType.READY, False, obstacles[0][0], "; ".join(message for _, message in obstacles))


def _list_condition_events(name: str, before: Condition | None, after: Condition) -> Iterable[NewEvent]:
    target, reason = source_target(name), Reason.from_stored(after.reason)
    if after.type == ConditionType.SOURCE_REACHABLE and not after.status:
        yield NewEvent(target, reason, after.message)
    elif after == REACHABLE and before is not None and not before.status:
        yield _make_recovered_event(target, before)
    if after.type != ConditionType.READY:
        return
    if reason is Reason.INTERNAL_ERROR:
        yield NewEvent(target, reason, after.message)
    elif before is not None and before.reason in RECOVERS_FROM - {reason}:
        yield _make_recovered_event(target, before)


def _make_recovered_event(target: str, before: Condition) -> NewEvent:
    return NewEvent(target, Reason.RECOVERED, f"over: {before.reason}: {before.message}")


def _list_invalid_events(name: str, reason: Reason, prepared: PlannedRevision, ended: Report) -> Iterable[NewEvent]:
    """Events of a refused revision or skipped files, and of the first errors, each for its resource."""
    revision, target = prepared.revision, source_target(name)
    what = "is refused" if ended.outcome == REFUSED else "is applied without the files with errors"
    summary = ended.skipped_files or ended.message
    yield NewEvent(target, reason, f"{revision.commit[:12]} ({revision.subject}, {revision.author}) {what}: {summary}")
    errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
    for error in errors[:MAX_EVENTS]:
        yield NewEvent(error.key or target, reason, f"{format_place(error)}: {error.message}")


def _failed_run(ended: Report, reason: str, revision: Revision | None = None) -> Run:
    who = {} if revision is None else {"author": revision.author, "subject": revision.subject}
    return Run(0, ended.source, ended.revision, reason, 0.0, None, ended.outcome, "", {}, ended.message, **who)


def _approval_required(name: str, plan: Plan) -> NewEvent:
    count = sum(step.hold.approvable for step in plan.steps)
    message = (
        f"{count} step{'s wait' if count > 1 else ' waits'} for: reconciler approve {shorten_id(plan.hold_digest)}"
    )
    return NewEvent(source_target(name), Reason.APPROVAL_REQUIRED, message)
