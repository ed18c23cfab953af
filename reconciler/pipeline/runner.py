"""Runs: every source's line, the executor and the status writers over one set of records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from reconciler.clock import Clock
from reconciler.drift.monitor import DriftMonitor
from reconciler.engines.execution.executor import Executor
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.protocol import SupportsLifecycle
from reconciler.engines.registry import ENGINES, MakeEngine, decommissioned_engines, engines_for
from reconciler.errors import EngineError, SourceError
from reconciler.model.finding import Severity
from reconciler.model.key import Kind
from reconciler.pipeline import report
from reconciler.pipeline.report import DONE, Report
from reconciler.pipeline.saved_plan import SavedPlan
from reconciler.pipeline.secret_store import SecretStore
from reconciler.pipeline.source_pipeline import PlannedRevision, SourcePipeline
from reconciler.planning.plan import Plan
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.status.conditions import PINNED, READY, SUSPENDED, Condition
from reconciler.status.publisher import StatusPublisher
from reconciler.status.waiting import mark_status_dirty, pinned_by, suspended_by
from reconciler.tasks import ENGINES_CLOSE_SECONDS, wait_at_most

ORG_SCOPED_FOR_WORKLOADS = frozenset({Kind.GVC, Kind.LOCATION, Kind.SECRET})
"""What is recorded without a place and reaches an engine with the workloads that use it."""

REASON_ADOPTED = "adopt"
"""Why a run looks at all that the source owns: it has come to own more since the last one."""

MAX_EVENTS = 100
"""Findings of a refused revision that become events; the rest is counted in its condition."""


Preempted = Callable[[str], bool]
"""Whether the run of a revision (as text) should begin nothing new."""


def never(_revision: str) -> bool:
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
        reveal = SecretStore(records, settings).read
        made = engines_for(settings, records, clock, reveal, engines)
        all_made = [*made.values(), *decommissioned_engines(settings, records, clock, reveal)]
        self._lifecycle_engines = [engine for engine in all_made if isinstance(engine, SupportsLifecycle)]
        self.drift_monitor = DriftMonitor(settings, records, clock, made)
        self.executor = Executor(records, made, clock, retry, settings.parallel, random.Random())
        self.lines = {source.name: SourcePipeline(settings, source, records, clock) for source in settings.sources}
        self.writers = {
            source.name: StatusPublisher(records, self.lines[source.name].source, settings, clock)
            for source in settings.sources
        }
        self._refused: dict[str, str] = {}
        self.sources_to_requeue: set[str] = set()
        """Sources that should be looked at again, since another one changed what they build on."""

    async def open(self) -> int:
        """Let the engines begin to work, and perform again what a crash left without an outcome; how many steps.

        Sources that the settings have no more are forgotten first: what they asked for is free to be another's. Raises
        RecordsError.
        """
        for engine in self._lifecycle_engines:
            # One that cannot is tried again, and told, at each look at its location.
            with suppress(EngineError):
                await engine.open()
        self._forget(set(self.records.sources.names()) - self.lines.keys())
        return len(await self.executor.replay())

    def refresh_engines(self) -> None:
        """Have the engines look again at what reaches them with no step: GVCs, secrets, restarts that were asked for.

        Raises RecordsError.
        """
        for engine in self._lifecycle_engines:
            engine.refresh()

    async def close(self) -> None:
        """End the work of the engines; what they run goes on. An engine that does not end in time is abandoned."""
        closing = [asyncio.create_task(engine.close(), name=engine.name) for engine in self._lifecycle_engines]
        await wait_at_most(closing, "engines", ENGINES_CLOSE_SECONDS)

    def _forget(self, names: set[str]) -> None:
        if not names:
            return
        with self.records.transaction():
            for name in sorted(names):
                self.records.failures.clear_all(name)
                self.records.desired.replace(name, [key for key, _ in self.records.desired.scan(name)], ())
                self.records.status_queue.clear_all(name)
                self.records.conditions.forget(name)
                self.records.sources.forget(name)

    async def run(
        self, name: str, reason: str, preempted: Preempted = never, reviewed: SavedPlan | None = None
    ) -> Report:
        """One run of the source ``name``: refresh, read, plan, perform; conditions and events are recorded.

        Where the plan is not the one that was ``reviewed``, nothing is done but to say so. Raises RecordsError; a
        source that cannot be read, or is refused, is told in the report.
        """
        line = self.lines[name]
        self.sources_to_requeue.discard(name)
        if REASON_ADOPTED in reason.split(","):
            line.pending_keys = None
        if (suspended := self._suspended(name)) is not None:
            return suspended
        try:
            prepared = await asyncio.to_thread(self._read, line)
        except SourceError as error:
            return self._unreadable(name, error)
        if reviewed is not None and prepared.plan is not None and (other := reviewed.difference_from(prepared.plan)):
            return report.plan_changed(name, str(prepared.revision), other)
        ended = await line.execute(prepared, self.executor, reason, partial(preempted, str(prepared.revision)))
        if prepared.plan is not None and any(step.key.kind in ORG_SCOPED_FOR_WORKLOADS for step in prepared.plan.steps):
            self.refresh_engines()
        self._conditions(name, prepared, ended)
        self._requeue_dependents(name, prepared, ended)
        return ended

    def _requeue_dependents(self, name: str, prepared: PlannedRevision, ended: Report) -> None:
        """Let other sources look again at what the run of ``name`` may have changed for them.

        A refusal may be over once something is there, or declared there no more; and what a source has in a GVC of
        another one follows where that GVC goes.
        """
        delta, plan = prepared.loaded.change_set, prepared.plan
        done = any(word in DONE.values() for word in ended.counts)
        if plan is None or not (done or delta.added or delta.previous):
            return
        moved = done and any(step.key.kind in (Kind.GVC, Kind.LOCATION) for step in plan.steps)
        for other in (line for line in self.lines.values() if line.name != name):
            if other.refused_commit or (moved and other.pending_keys is not None):
                self.sources_to_requeue.add(other.name)
            other.refused_commit = ""
            if moved:
                other.pending_keys = None

    async def poll(self, name: str, preempted: Preempted = never) -> Report | None:
        """A look at the source that becomes a run only where there is reason for one; else None."""
        line = self.lines[name]
        if (suspended := self._suspended(name)) is not None:
            return suspended
        try:
            if not line.source.local:
                await asyncio.to_thread(line.source.refresh)
            verified = line.source.settings.verify is not None
            if await asyncio.to_thread(line.has_nothing_to_do) if verified else line.has_nothing_to_do():
                self._set_conditions(name, _REACHABLE)
                return None
        except SourceError as error:
            return self._unreadable(name, error)
        return await self.run(name, "poll", preempted)

    def sources_to_repoll(self) -> list[str]:
        """Sources with steps that wait for what nobody announces, such as the health of something else."""
        return [name for name, line in self.lines.items() if line.must_repoll]

    def has_newer_revision(self, name: str, revision: str) -> bool:
        """Whether the source stands elsewhere than at ``revision`` as far as this machine knows."""
        return self.lines[name].has_newer_revision(revision)

    def flush(self, name: str, *, force: bool = False) -> bool:
        """Write the status of the source ``name`` to its branch where it is due; whether something was written."""
        return self.writers[name].flush(force=force)

    def next_attempt(self) -> float | None:
        """When the next failed step is owed another try (seconds since the epoch), None where none is."""
        return self.records.failures.next_attempt()

    def _suspended(self, name: str) -> Report | None:
        """The report of a source about which nothing is done now; its conditions say so, and that it is pinned."""
        self._end_suspensions()
        pin = self.records.pins.get(name)
        found = self.records.suspensions.get(source_target(name))
        wanted = [Condition(PINNED, True, PINNED, pinned_by(pin))] if pin is not None else []
        wanted += [Condition(SUSPENDED, True, SUSPENDED, suspended_by(found))] if found is not None else []
        self._set_conditions(name, *wanted)
        over = {PINNED, SUSPENDED} - {each.type for each in wanted}
        for kind in over & {each.type for each in self.records.conditions.get(name)}:
            self.records.conditions.drop(name, kind)
        return None if found is None else report.suspended(name, suspended_by(found))

    def _end_suspensions(self) -> None:
        """Take away suspensions whose time is over, and tell of it."""
        over = self.records.suspensions.over()
        if not over:
            return
        now = self.clock.now()
        with self.records.transaction():
            for each in over:
                self.records.suspensions.remove(each.target)
                mark_status_dirty(self.records, each.target)
            told = ((each.target, f"its time is over: {suspended_by(each)}") for each in over)
            self._append_events(Event(now, 0, target, "", "Normal", "Resumed", message) for target, message in told)

    def next_end(self) -> float | None:
        """When the next suspension ends by itself (seconds since the epoch), None where none does."""
        return self.records.suspensions.next_end()

    def _read(self, line: SourcePipeline) -> PlannedRevision:
        line.source.refresh()
        return line.plan_revision(keep_cache=True)

    def _unreadable(self, name: str, error: SourceError) -> Report:
        self._set_conditions(name, Condition("SourceReachable", False, error.reason, str(error)))
        since = next(each.since for each in self.records.conditions.get(name) if each.type == "SourceReachable")
        if self.clock.now() - since >= self.settings.stale:
            message = f"no revision could be read for longer than {self.settings.stale:.0f} s"
            self._set_conditions(name, Condition("SourceStale", True, error.reason, message))
        return report.unreadable(name, error)

    def _conditions(self, name: str, prepared: PlannedRevision, ended: Report) -> None:
        reason = "InvalidRevision" if ended.outcome == "refused" else "InvalidFiles" if ended.left_out else ""
        if reason and self._refused.get(name) != ended.revision:
            now = self.clock.now()
            errors = [finding for finding in prepared.findings if finding.severity is Severity.ERROR]
            told = ((f.key or f"source/{name}", f"{report.place(f)}: {f.message}") for f in errors[:MAX_EVENTS])
            self._append_events(_warning(now, key, reason, message) for key, message in told)
        self._refused[name] = ended.revision if reason else ""
        fresh = self._set_conditions(name, _REACHABLE, _readiness(ended))
        if prepared.plan is not None and prepared.plan.held and READY in fresh:
            self._append_events([_waiting(self.clock.now(), name, prepared.plan)])

    def _set_conditions(self, name: str, *wanted: Condition) -> set[str]:
        """Note how the source stands, and return the types of what is new: the rest costs no write.

        Trouble with reading it is an event.
        """
        known = {each.type: (each.status, each.reason, each.message) for each in self.records.conditions.get(name)}
        fresh = [each for each in wanted if known.get(each.type) != (each.status, each.reason, each.message)]
        if _REACHABLE in fresh and known.get("SourceStale", (False,))[0]:
            fresh.append(Condition("SourceStale", False, "Fresh", ""))
        if not fresh:
            return set()
        now = self.clock.now()
        bad = [each for each in fresh if each.type == "SourceReachable" and not each.status]
        with self.records.transaction():
            for each in fresh:
                self.records.conditions.set(name, each.type, each.status, each.reason, each.message, now)
            if bad:
                self._append_events(_warning(now, f"source/{name}", each.reason, each.message) for each in bad)
        return {each.type for each in fresh}

    def _append_events(self, events: Iterable[Event]) -> None:
        """Nothing may come to be applied for a long time, so what is told meanwhile is trimmed here."""
        with self.records.transaction():
            self.records.events.add_many(events)
            self.records.events.trim(self.settings.events.keep)


_REACHABLE = Condition("SourceReachable", True, "Read", "")


def _readiness(ended: Report) -> Condition:
    if ended.outcome == "refused":
        return Condition("Ready", False, ended.reason, ended.message)
    found: list[tuple[str, str]] = []
    if ended.left_out:
        found.append(("InvalidFiles", f"files with errors stay as they were: {ended.left_out}"))
    if ended.held:
        found.append(("ApprovalRequired", f"let what waits go with: reconciler approve {ended.held}"))
    elif ended.outcome in ("failed", "waiting"):
        reason = "StepsFailed" if ended.outcome == "failed" else "StepsWaiting"
        found.append((reason, ended.troubles[0] if ended.troubles else ended.message))
    if not found:
        return Condition("Ready", True, "Applied", "")
    return Condition("Ready", False, found[0][0], "; ".join(message for _, message in found))


def _warning(at: float, key: str, reason: str, message: str) -> Event:
    return Event(at, 0, key, "", "Warning", reason, message)


def _waiting(at: float, name: str, plan: Plan) -> Event:
    count = sum(step.hold.approvable for step in plan.steps)
    message = f"{count} step{'s wait' if count > 1 else ' waits'}; let go with: reconciler approve {plan.held}"
    return Event(at, 0, source_target(name), "", "Normal", "ApprovalRequired", message)
