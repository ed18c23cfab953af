"""Conditions and events of a source, from how its runs end; what is as it was costs no write."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.clock import Clock
from reconciler.errors import InternalError, SourceError
from reconciler.model.finding import Severity
from reconciler.pipeline import report
from reconciler.pipeline.report import Report
from reconciler.pipeline.source_pipeline import PlannedRevision
from reconciler.planning.plan import Plan
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.status.conditions import READY, SOURCE_REACHABLE, SOURCE_STALE, Condition, truncate

MAX_EVENTS = 100
"""Findings of a refused revision that become events; the rest is counted in its condition."""

RECOVERS_FROM = frozenset({InternalError.reason})
"""Reasons of Ready whose end is an event."""

REACHABLE = Condition(SOURCE_REACHABLE, True, "Read", "")


class SourceConditions:
    """Writes conditions and events of sources. Every method raises RecordsError."""

    def __init__(self, records: Records, settings: Settings, clock: Clock) -> None:
        self._records = records
        self._settings = settings
        self._clock = clock
        self._refused: dict[str, str] = {}
        self._bugs: set[tuple[str, str]] = set()

    def after_run(self, name: str, prepared: PlannedRevision, ended: Report) -> None:
        """Write down how a run of the source ``name`` ended."""
        reason = "InvalidRevision" if ended.outcome == "refused" else "InvalidFiles" if ended.left_out else ""
        if reason and self._refused.get(name) != ended.revision:
            now = self._clock.now()
            errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
            told = ((f.key or source_target(name), f"{report.place(f)}: {f.message}") for f in errors[:MAX_EVENTS])
            self.append_events(_warning(now, key, reason, message) for key, message in told)
        self._refused[name] = ended.revision if reason else ""
        fresh = self.set(name, REACHABLE, _readiness(ended))
        if prepared.plan is not None and prepared.plan.held and READY in fresh:
            self.append_events([_waiting(self._clock.now(), name, prepared.plan)])

    def unreadable(self, name: str, error: SourceError) -> None:
        """Write down that no revision of the source ``name`` can be read."""
        self.set(name, Condition(SOURCE_REACHABLE, False, error.reason, str(error)))
        since = next(each.since for each in self._records.conditions.get(name) if each.type == SOURCE_REACHABLE)
        if self._clock.now() - since >= self._settings.stale:
            message = f"no revision could be read for longer than {self._settings.stale:.0f} s"
            self.set(name, Condition(SOURCE_STALE, True, error.reason, message))

    def internal_error(self, name: str, bug: InternalError) -> None:
        """Write down that a bug ended a run of the source ``name``."""
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
        known = {each.type: Condition(each.type, each.status, each.reason, each.message)
                 for each in self._records.conditions.get(name)}  # fmt: skip
        fresh = [each for each in wanted if known.get(each.type) != each]
        if REACHABLE in fresh and SOURCE_STALE in known and known[SOURCE_STALE].status:
            fresh.append(Condition(SOURCE_STALE, False, "Fresh", ""))
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
        found.append(("InvalidFiles", f"files with errors stay as they were: {ended.left_out}"))
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
    if now_holds.type != READY:
        return
    if now_holds.reason == InternalError.reason:
        yield _warning(at, target, now_holds.reason, now_holds.message)
    elif before is not None and before.reason in RECOVERS_FROM:
        yield Event(at, 0, target, "", "Normal", "Recovered", f"over: {before.reason}: {before.message}")


def _warning(at: float, key: str, reason: str, message: str) -> Event:
    return Event(at, 0, key, "", "Warning", reason, message)


def _waiting(at: float, name: str, plan: Plan) -> Event:
    count = sum(step.hold.approvable for step in plan.steps)
    message = f"{count} step{'s wait' if count > 1 else ' waits'}; let go with: reconciler approve {plan.held}"
    return Event(at, 0, source_target(name), "", "Normal", "ApprovalRequired", message)
