"""Conditions and events of a source, from how its runs end; what is as it was costs no write."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.clock import Clock
from reconciler.errors import InternalError, SourceError
from reconciler.model.finding import Severity
from reconciler.model.revision import Revision
from reconciler.pipeline import report
from reconciler.pipeline.report import Report
from reconciler.pipeline.source_pipeline import PlannedRevision
from reconciler.planning.plan import Plan
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.runs import REFUSED, Run
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.status.conditions import READY, SOURCE_REACHABLE, SOURCE_STALE, Condition, truncate

MAX_EVENTS = 100
"""Findings of a refused revision that become events; the rest is counted in its condition."""

INVALID_REVISION, INVALID_FILES = "InvalidRevision", "InvalidFiles"
RECOVERS_FROM = frozenset({InternalError.reason, INVALID_REVISION, INVALID_FILES})
"""Reasons of Ready whose end is an event."""

REACHABLE = Condition(SOURCE_REACHABLE, True, "Fetched", "")


class SourceConditions:
    """Writes conditions and events of sources. Every method raises RecordsError."""

    def __init__(self, records: Records, settings: Settings, clock: Clock) -> None:
        self._records = records
        self._settings = settings
        self._clock = clock
        self._left_out: dict[str, str] = {}
        self._bugs: set[tuple[str, str]] = set()

    def after_run(self, name: str, prepared: PlannedRevision, ended: Report, reason: str) -> None:
        """Write down how a run of the source ``name``, made for ``reason``, ended."""
        refused = ended.outcome == REFUSED
        if refused:
            is_new = self._records.runs.append_failed(_failed_run(ended, reason, prepared.revision))
        else:
            is_new = bool(ended.left_out) and self._left_out.get(name) != ended.revision
        self._left_out[name] = ended.revision if ended.left_out else ""
        if is_new:
            why = INVALID_REVISION if refused else INVALID_FILES
            self.append_events(_invalid(self._clock.now(), name, why, prepared, ended))
        fresh = self.set(name, REACHABLE, _readiness(ended))
        if prepared.plan is not None and prepared.plan.hold_digest and READY in fresh:
            self.append_events([_waiting(self._clock.now(), name, prepared.plan)])

    def unreadable(self, name: str, error: SourceError, reason: str) -> None:
        """Write down that no revision of the source ``name`` could be read for a run made for ``reason``."""
        before = self._of(name).get(SOURCE_REACHABLE)
        if before is None or before.status or before.reason != error.reason:
            self._records.runs.append_failed(_failed_run(report.unreadable(name, error), reason))
        self.set(name, Condition(SOURCE_REACHABLE, False, error.reason, str(error)))
        since = next(each.since for each in self._records.conditions.get(name) if each.type == SOURCE_REACHABLE)
        if self._clock.now() - since >= self._settings.stale:
            message = f"no revision could be read for longer than {self._settings.stale:.0f} s"
            self.set(name, Condition(SOURCE_STALE, True, error.reason, message))

    def internal_error(self, name: str, bug: InternalError, run: Report, reason: str) -> None:
        """Write down that a bug ended the ``run`` of the source ``name`` that was made for ``reason``."""
        self._records.runs.append_failed(_failed_run(run, reason))
        self.set(name, Condition(READY, False, bug.reason, truncate(str(bug))))

    def append_bug(self, part: str, bug: InternalError) -> None:
        """Append the event of a bug that concerns no source, once for each place: it may be met every second."""
        if (part, bug.place) not in self._bugs:
            self._bugs.add((part, bug.place))
            self.append_events([_warning(self._clock.now(), "", bug.reason, truncate(f"{part}: {bug}"))])

    def set(self, name: str, *wanted: Condition) -> set[str]:
        """Write the conditions that are new, and return their types.

        That a source cannot be read, that a bug ended its run, and the end of that, are events.
        """
        known = self._of(name)
        fresh = [each for each in wanted if known.get(each.type) != each]
        if REACHABLE in fresh and SOURCE_STALE in known and known[SOURCE_STALE].status:
            fresh.append(Condition(SOURCE_STALE, False, "Fetched", ""))
        if not fresh:
            return set()
        now = self._clock.now()
        events = [event for each in fresh for event in _events(name, known.get(each.type), each, now)]
        with self._records.transaction():
            for each in fresh:
                self._records.conditions.set(name, each.type, each.status, each.reason, each.message, now)
            if events:
                self.append_events(events)
        return {each.type for each in fresh}

    def _of(self, name: str) -> dict[str, Condition]:
        found = self._records.conditions.get(name)
        return {each.type: Condition(each.type, each.status, each.reason, each.message) for each in found}

    def append_events(self, events: Iterable[Event]) -> None:
        """Append ``events`` and drop the oldest: nothing may come to be applied, and trimmed, for a long time."""
        with self._records.transaction():
            self._records.events.add_many(events)
            self._records.events.trim(self._settings.events.keep)


def _readiness(ended: Report) -> Condition:
    if ended.outcome == "refused":
        return Condition(READY, False, ended.reason, ended.message)
    found: list[tuple[str, str]] = []
    if ended.left_out:
        found.append((INVALID_FILES, f"files with errors stay as they were: {ended.left_out}"))
    if ended.held:
        found.append(("ApprovalRequired", f"let what waits go with: reconciler approve {ended.held}"))
    elif ended.outcome in ("failed", "waiting"):
        reason = "StepsFailed" if ended.outcome == "failed" else "StepsWaiting"
        found.append((reason, ended.troubles[0] if ended.troubles else ended.message))
    if not found:
        return Condition(READY, True, "Applied", "")
    return Condition(READY, False, found[0][0], "; ".join(message for _, message in found))


def _events(name: str, before: Condition | None, now_holds: Condition, at: float) -> Iterable[Event]:
    target = source_target(name)
    if now_holds.type == SOURCE_REACHABLE and not now_holds.status:
        yield _warning(at, target, now_holds.reason, now_holds.message)
    elif now_holds == REACHABLE and before is not None and not before.status:
        yield _recovered(at, target, before)
    if now_holds.type != READY:
        return
    if now_holds.reason == InternalError.reason:
        yield _warning(at, target, now_holds.reason, now_holds.message)
    elif before is not None and before.reason in RECOVERS_FROM - {now_holds.reason}:
        yield _recovered(at, target, before)


def _recovered(at: float, target: str, before: Condition) -> Event:
    return Event(at, 0, target, "", "Normal", "Recovered", f"over: {before.reason}: {before.message}")


def _invalid(at: float, name: str, reason: str, prepared: PlannedRevision, ended: Report) -> Iterable[Event]:
    """That a revision is refused, or files of it are left out, and its first errors, each of the resource concerned."""
    made, target = prepared.revision, source_target(name)
    what = "is refused" if ended.outcome == REFUSED else "is applied without the files with errors"
    summary = ended.left_out or ended.message
    yield _warning(at, target, reason, f"{made.commit[:12]} ({made.subject}, {made.author}) {what}: {summary}")
    errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
    for each in errors[:MAX_EVENTS]:
        yield _warning(at, each.key or target, reason, f"{report.place(each)}: {each.message}")


def _failed_run(ended: Report, reason: str, made: Revision | None = None) -> Run:
    who = {} if made is None else {"author": made.author, "subject": made.subject}
    return Run(0, ended.source, ended.revision, reason, 0.0, None, ended.outcome, "", {}, ended.message, **who)


def _warning(at: float, key: str, reason: str, message: str) -> Event:
    return Event(at, 0, key, "", "Warning", reason, message)


def _waiting(at: float, name: str, plan: Plan) -> Event:
    count = sum(step.hold.approvable for step in plan.steps)
    message = f"{count} step{'s wait' if count > 1 else ' waits'}; let go with: reconciler approve {plan.hold_digest}"
    return Event(at, 0, source_target(name), "", "Normal", "ApprovalRequired", message)
