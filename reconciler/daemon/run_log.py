"""Log lines of runs: one line each, at level debug if nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.clock import Clock
from reconciler.iteration import Progress
from reconciler.logs import log
from reconciler.pipeline.report import Report
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.tracing import end_run

_BAD = frozenset({"refused", "unreadable", "failed"})


REMINDER = 3600.0
"""Seconds after which a bad state is logged again."""
PROGRESS_SECONDS = 10.0


class RunLog:
    """Logs the state of each source when it changes, and a bad state again every hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._last: dict[str, Report] = {}
        self._status: dict[str, str] = {}
        self._unseen: dict[str, str] = {}

    def run(self, report: Report, reason: str, seconds: float) -> None:
        """Log a run, at level debug if it changed nothing and ended like the last one; and export its trace."""
        results = {f"reconciler.resources.{name}": number for name, number in report.counts.items()}
        end_run(
            report.source,
            {
                "reconciler.source": report.source,
                "reconciler.reason": reason,
                "reconciler.outcome": report.outcome,
                "vcs.ref.head.revision": report.revision.rpartition(":")[2],
                **results,
            },
        )
        last = self._last.get(report.source)
        self._last[report.source] = report
        bad = _has_problems(report)
        recovered = last is not None and _has_problems(last) and not bad
        repeated = _make_report_key(report) == _make_report_key(last) or (
            report.outcome == "unchanged" and not bad and not recovered
        )
        now = self._clock.monotonic()
        if bad and now - self._logged_at.get(report.source, now) >= REMINDER:
            repeated = False
        if not repeated:
            self._logged_at[report.source] = now
        level = "debug" if repeated else "warning" if bad else "info"
        facts = {"reason": reason, "outcome": report.outcome, "revision": report.revision, **report.counts}
        if report.outcome in ("refused", "unreadable") or report.reason == Reason.INTERNAL_ERROR:
            facts["message"] = report.message
        if report.skipped_files:
            facts["skipped"] = report.skipped_files
        if report.hold_digest:
            facts["approve"] = report.hold_digest
        getattr(log(), level)("reconciled", source=report.source, seconds=round(seconds, 4), **facts)

    def idle(self, name: str) -> None:
        """Log a poll that found nothing to do, only if the last one could not read the source."""
        last = self._last.get(name)
        if last is not None and last.outcome == "unreadable":
            del self._last[name]
            log().info("reconciled", source=name, reason="poll", outcome="unchanged", revision=last.revision)

    def status(self, records: Records, name: str) -> None:
        """Log a change in whether the status can be written."""
        scope_condition = next(
            (condition for condition in records.conditions.get(name) if condition.type == ConditionType.STATUS_PUSHED),
            None,
        )
        trouble = "" if scope_condition is None or scope_condition.status else scope_condition.reason
        if trouble == self._status.get(name, ""):
            return
        self._status[name] = trouble
        if scope_condition is not None and trouble:
            log().warning(
                "status", source=name, pushed=False, reason=scope_condition.reason, message=scope_condition.message
            )
        else:
            log().info("status", source=name, pushed=True)

    def unseen(self, places: Mapping[str, str]) -> None:
        """Log changes of the unreachable locations ``places`` (location → reason)."""
        for location in sorted(places.keys() | self._unseen.keys()):
            if location not in places:
                log().info("location", location=location, reachable=True)
            elif self._unseen.get(location) != places[location]:
                log().warning("location", location=location, reachable=False, message=places[location])
        self._unseen = dict(places)


def _has_problems(report: Report) -> bool:
    return report.outcome in _BAD or bool(report.skipped_files)


def _make_report_key(report: Report | None) -> tuple[object, ...]:
    if report is None:
        return ()
    words = report.reason, report.message, report.skipped_files
    return report.outcome, report.revision, words, sorted(report.counts.items())


class ProgressLog:
    """Logs the progress of long works, such as the first read of a repository: a line each ``PROGRESS_SECONDS``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due = now() + PROGRESS_SECONDS

    def report(self, progress: Progress) -> None:
        """Log ``progress`` if it is time."""
        if (now := self._now()) >= self._due and progress.done < progress.total:
            self._due = now + PROGRESS_SECONDS
            log().info("progress", what=progress.what, done=progress.done, total=progress.total)
