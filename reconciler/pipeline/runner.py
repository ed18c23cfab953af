"""Runs: every source's line, the executor and the status writers over one set of records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from reconciler.clock import Clock
from reconciler.engines.backoff import RetryPolicy
from reconciler.engines.executor import Executor
from reconciler.engines.registry import ENGINES, MakeEngine, engines_for
from reconciler.errors import SourceError
from reconciler.model.finding import Severity
from reconciler.model.record import Health
from reconciler.pipeline import report
from reconciler.pipeline.line import Line, Prepared
from reconciler.pipeline.report import Report
from reconciler.records.events import Event
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.status.writer import StatusWriter

MOST_EVENTS = 100
"""Findings of a refused revision that become events; the rest is counted in its condition."""


def never() -> bool:
    """Nothing pre-empts."""
    return False


class Runner:
    """What one holder of the state lock works with. Only one run at a time is under way."""

    def __init__(
        self, settings: Settings, records: Records, clock: Clock, engines: Mapping[str, MakeEngine] = ENGINES
    ) -> None:
        self.settings = settings
        self.records = records
        self.clock = clock
        retry = RetryPolicy(settings.retry.base, settings.retry.cap, settings.retry.attempts)
        made = engines_for(settings, records, clock, engines)
        self.executor = Executor(records, made, clock, retry, settings.parallel, random.Random())
        self.lines = {source.name: Line(settings, source, records, clock) for source in settings.sources}
        self.writers = {
            source.name: StatusWriter(records, self.lines[source.name].source, settings, clock)
            for source in settings.sources
        }
        self._refused: dict[str, str] = {}

    async def replay(self) -> int:
        """Perform again what a crash left without an outcome; how many steps those were. Raises RecordsError."""
        return len(await self.executor.replay())

    async def run(self, name: str, reason: str, preempted: Callable[[], bool] = never) -> Report:
        """One run of the source ``name``: refresh, read, plan, perform; conditions and events are recorded.

        Raises RecordsError; a source that cannot be read, or is refused, is told in the report.
        """
        line = self.lines[name]
        try:
            prepared = await asyncio.to_thread(self._read, line)
        except SourceError as error:
            return self._unreadable(name, error)
        ended = await line.perform(prepared, self.executor, reason, preempted)
        self._conditions(name, prepared, ended)
        return ended

    def flush(self, name: str, *, force: bool = False) -> bool:
        """Write the status of the source ``name`` to its branch where it is due; whether something was written."""
        return self.writers[name].flush(force=force)

    def next_attempt(self) -> float | None:
        """When the next failed step is owed another try (seconds since the epoch), None where none is."""
        return self.records.failures.next_attempt()

    def all_healthy(self) -> bool:
        """Whether all that is recorded is Healthy."""
        return all(health is Health.HEALTHY for _, health in self.records.applied.counts())

    def _read(self, line: Line) -> Prepared:
        line.source.refresh()
        return line.prepare(keep_cache=True)

    def _unreadable(self, name: str, error: SourceError) -> Report:
        now = self.clock.now()
        with self.records.transaction():
            if self.records.conditions.set(name, "SourceReachable", False, error.reason, str(error), now):
                self.records.events.add_many([_warning(now, f"source/{name}", error.reason, str(error))])
            since = next(c.since for c in self.records.conditions.get(name) if c.type == "SourceReachable")
            if now - since >= self.settings.stale:
                message = f"no revision could be read for longer than {self.settings.stale:.0f} s"
                self.records.conditions.set(name, "SourceStale", True, error.reason, message, now)
        return report.unreadable(name, error)

    def _conditions(self, name: str, prepared: Prepared, ended: Report) -> None:
        now = self.clock.now()
        set_condition = self.records.conditions.set
        with self.records.transaction():
            set_condition(name, "SourceReachable", True, "Read", "", now)
            set_condition(name, "SourceStale", False, "Fresh", "", now)
            ready, reason, message = _readiness(ended)
            set_condition(name, "Ready", ready, reason, message, now)
            if ended.outcome == "refused" and self._refused.get(name) != ended.revision:
                errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
                told = ((f.key or f"source/{name}", f"{report.place(f)}: {f.message}") for f in errors[:MOST_EVENTS])
                self.records.events.add_many(_warning(now, key, "InvalidRevision", message) for key, message in told)
        self._refused[name] = ended.revision if ended.outcome == "refused" else ""


def _readiness(ended: Report) -> tuple[bool, str, str]:
    if ended.outcome == "refused":
        return False, ended.reason, ended.message
    if ended.held:
        return False, "ApprovalRequired", f"let what waits go with: reconciler approve {ended.held}"
    if not ended.good:
        first = ended.troubles[0] if ended.troubles else ended.message
        return False, "StepsFailed" if ended.outcome == "failed" else "StepsWaiting", first
    return True, "Applied", ""


def _warning(at: float, key: str, reason: str, message: str) -> Event:
    return Event(at, 0, key, "", "Warning", reason, message)
