"""Runs sources: their pipelines, the executor and the status writers over one set of records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TypeVar

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.drift.monitor import DriftMonitor
from reconciler.engines.execution.command_queue import CommandQueue
from reconciler.engines.execution.executor import Executor
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.protocol import (
    ReplicaCounts,
    SupportsLifecycle,
    SupportsReplicas,
    SupportsSchedules,
    SupportsWatch,
)
from reconciler.engines.registry import MakeEngine, decommissioned_engines, engines_for
from reconciler.engines.target_metrics import SupportsMetrics, TargetMetrics
from reconciler.errors import EngineError, RecordsError, SourceError
from reconciler.model.key import Key, Kind
from reconciler.pipeline import report
from reconciler.pipeline.placement import moved_members
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.report import Report
from reconciler.pipeline.saved_plan import SavedPlan
from reconciler.pipeline.secret_filler import SecretFiller
from reconciler.pipeline.source_conditions import MAX_EVENTS, REACHABLE, SourceConditions
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.pipeline.source_state import SourceState
from reconciler.planning.plan import Plan, Step
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.suspensions import source_target
from reconciler.secrets.store import SecretStore
from reconciler.settings import Settings
from reconciler.status.conditions import make_condition
from reconciler.status.publisher import StatusPublisher
from reconciler.status.waiting import end_expired, next_expiry, orphaned_by_settings, pinned_by, suspended_by
from reconciler.tasks import ENGINES_CLOSE_SECONDS, wait_at_most
from reconciler.tracing import begin_run

ORG_SCOPED_FOR_WORKLOADS = frozenset({Kind.GVC, Kind.LOCATION, Kind.SECRET, Kind.DOMAIN})
"""Kinds recorded without a location, which reach an engine through the workloads that use them."""

REASON_ADOPTED = "adopt"
"""Reason of a run that compares all resources of the source, because it adopted some."""
REASON_POLL = "poll"
"""Reason of a run because the source moved, or because work was due."""

Answer = TypeVar("Answer")
Preempted = Callable[[str], bool]
"""Whether the run of a revision (as text) should start no further step."""


def ignore_preemption(_revision: str) -> bool:
    """A run that is never pre-empted."""
    return False


async def _open_engine(engine: SupportsLifecycle) -> RecordsError | None:
    """Open ``engine``; returns what nothing can go on without. Each drift check tries others again and reports them."""
    try:
        await engine.open()
    except RecordsError as error:
        return error
    except EngineError:
        pass
    except Exception as error:  # noqa: BLE001 - the other engines and the sources go on
        internal_error(error, "opening an engine")
    return None


class Runner:
    """The work of the process that holds the state lock. Makes one run at a time."""

    def __init__(
        self, settings: Settings, records: Records, clock: Clock, engines: Mapping[str, MakeEngine] | None = None
    ) -> None:
        self.settings = settings
        self.records = records
        self.clock = clock
        retry = RetryPolicy(settings.retry.base, settings.retry.cap, settings.retry.attempts)
        self._secrets = SecretStore(records, settings)
        reveal = self._secrets.read
        host_engines = engines_for(settings, records, clock, reveal, engines)
        all_made = [*host_engines.values(), *decommissioned_engines(settings, records, clock, reveal)]
        self._lifecycle_engines = [engine for engine in all_made if isinstance(engine, SupportsLifecycle)]
        self.drift_monitor = DriftMonitor(settings, records, clock, host_engines)
        self.executor = Executor(records, host_engines, clock, retry, settings.parallel, random.Random())
        self.commands = CommandQueue(records, host_engines)
        self.pipelines = {source.name: SourcePipeline(settings, source, records, clock) for source in settings.sources}
        views = {name: pipeline.view for name, pipeline in self.pipelines.items()}
        self.secret_filler = SecretFiller(self._secrets, records, views)
        self._runs_containers = any(engine.can_drift for engine in host_engines.values())
        self.states = dict.fromkeys(self.pipelines, SourceState())
        lines = self.pipelines.items()
        self.writers = {name: StatusPublisher(records, pipeline.source, settings, clock) for name, pipeline in lines}
        self.conditions = SourceConditions(records, settings, clock)
        self.sources_to_requeue: set[str] = set()
        """Sources to poll again, since another source changed their dependencies."""

    async def open(self) -> int:
        """Start the engines, and replay steps that a crash left without an outcome; returns their number.

        Sources removed from the settings are forgotten first, so that other sources can own their resources. Raises
        RecordsError.
        """
        # An engine may start containers as soon as it is open, and they need their secrets.
        if self._runs_containers:
            await asyncio.to_thread(self.secret_filler.fill)
        # One that waits for an answer holds up no other.
        for error in await asyncio.gather(*map(_open_engine, self._lifecycle_engines)):
            if error is not None:
                raise error
        self._forget(set(self.records.sources.names()) - self.pipelines.keys())
        return len(await self.executor.replay())

    def begin_schedules(self) -> None:
        """Let the engines do what manifests schedule: every source was read since the start, or could not be."""
        for engine in self._lifecycle_engines:
            if isinstance(engine, SupportsSchedules):
                engine.begin_schedules()

    def refresh_engines(self) -> None:
        """Make the engines reread the inputs that change without a step: GVCs, secrets, requested restarts.

        Raises RecordsError.
        """
        for engine in self._lifecycle_engines:
            engine.refresh()

    def replica_counts(self) -> ReplicaCounts:
        """Total running and wanted replicas of the engines of this host."""
        counts = [engine.replica_counts() for engine in self._lifecycle_engines if isinstance(engine, SupportsReplicas)]
        running, desired = sum(count.running for count in counts), sum(count.wanted for count in counts)
        return ReplicaCounts(running, desired, any(count.busy for count in counts))

    def metrics(self) -> list[TargetMetrics]:
        """The last scrapes of all containers with metrics, at all locations of this host."""
        engines = [engine for engine in self._lifecycle_engines if isinstance(engine, SupportsMetrics)]
        return [metric for engine in engines for metric in engine.metrics()]

    async def close(self) -> None:
        """Stop the engines; their replicas keep running. An engine that does not stop in time is abandoned."""
        await self.commands.close()
        closing = [asyncio.create_task(engine.close(), name=engine.name) for engine in self._lifecycle_engines]
        await wait_at_most(closing, "engines", ENGINES_CLOSE_SECONDS)
        self._secrets.close()

    def _forget(self, names: set[str]) -> None:
        if not names:
            return
        with self.records.transaction():
            for name in sorted(names):
                self._append_orphaned(name)
                self.records.failures.clear_all(name)
                self.records.desired.replace(name, [key for key, _ in self.records.desired.scan(name)], ())
                self.records.status_queue.clear_all(name)
                self.records.conditions.forget(name)
                self.records.sources.forget(name)

    def _append_orphaned(self, name: str) -> None:
        """Append events that the applied resources of the source ``name`` stay and are no longer managed."""
        keys = dict.fromkeys(Key.parse(key) for key, *_ in self.records.applied.scan(name))
        if not keys:
            return
        count = f"{len(keys)} resource{'s' if len(keys) > 1 else ''}"
        adopt = f"reconciler adopt --all-of {name} --source NAME"
        summary = f"it is no longer in the settings; {count} of it stay unchanged until: {adopt}"
        messages = [(source_target(name), summary)]
        messages += [(str(key), orphaned_by_settings(name, key).message) for key in list(keys)[:MAX_EVENTS]]
        self.conditions.append_events(NewEvent(key, Reason.ORPHANED, message) for key, message in messages)

    async def run(
        self, name: str, reason: str, preempted: Preempted = ignore_preemption, reviewed: SavedPlan | None = None
    ) -> Report:
        """Run the source ``name``: refresh, read, plan, perform; record conditions and events.

        If the plan differs from the ``reviewed`` one, only the report says so. Raises RecordsError; the report covers
        a source that cannot be read, is refused, or meets a bug.
        """
        return await self._run_contained(name, self._run(name, reason, preempted, reviewed), reason)

    async def poll(self, name: str, preempted: Preempted = ignore_preemption) -> Report | None:
        """Poll the source: run it if it changed or work is due, else return None."""
        return await self._run_contained(name, self._poll(name, preempted), REASON_POLL)

    async def _run_contained(self, name: str, work: Coroutine[None, None, Answer], reason: str) -> Answer | Report:
        """Do ``work`` for one source; its errors do not affect others. Raises RecordsError, which concerns all."""
        begin_run()
        try:
            return await work
        except SourceError as error:
            self.conditions.unreadable(name, error, reason)
            return report.make_unreadable_report(name, error)
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug that one source meets must not end the daemon
            return self._record_crash(name, error, reason)

    async def _run(self, name: str, reason: str, preempted: Preempted, reviewed: SavedPlan | None) -> Report:
        pipeline = self.pipelines[name]
        self.sources_to_requeue.discard(name)
        # A run for several wake-ups has all their reasons, with commas between them.
        if REASON_ADOPTED in reason.split(","):
            self.states[name] = self.states[name].with_all_pending()
        if (suspended := self._report_suspended(name)) is not None:
            self.records.runs.end_interrupted(name)
            return suspended
        prepared = await asyncio.to_thread(self._read, name, reason)
        self.states[name] = prepared.state
        if reviewed is not None and prepared.plan is not None and (other := reviewed.difference_from(prepared.plan)):
            return report.with_commit(report.plan_changed(name, str(prepared.revision), other), prepared.revision)
        if prepared.plan is not None:
            self.states[name] = prepared.state.before_steps(prepared.plan)
        accepted = self.secret_filler.accept if self._runs_containers else None
        changed = not prepared.loaded.change_set.is_empty()
        execution = pipeline.execute(
            prepared, self.executor, reason, partial(preempted, str(prepared.revision)), accepted, self._observe_steps
        )
        # Only the execution still holds the resources; it drops them before the first step.
        prepared = prepared.without_resources()
        ended, self.states[name], health_changed = await execution
        ended = report.with_commit(ended, prepared.revision)
        if health_changed:
            self.sources_to_requeue.update(self.sources_to_repoll())
        self.conditions.after_run(name, prepared, ended, reason)
        self._requeue_dependents(name, prepared.plan, ended, changed=changed)
        return ended

    async def _observe_steps(self, steps: Sequence[Step]) -> bool:
        """Bring what ``steps`` changed to the workloads that use it, and observe these: before, they look as they were.

        Returns whether the health of anything changed. Raises RecordsError.
        """
        monitor = self.drift_monitor
        watched = {location for location, engine in monitor.engines.items() if isinstance(engine, SupportsWatch)}
        noticed = {step.location for step in steps if step.location in watched}
        for location in noticed:
            monitor.notice(location, frozenset(step.key for step in steps if step.location == location))
        if any(step.key.kind in ORG_SCOPED_FOR_WORKLOADS for step in steps):
            self._secrets.forget_old(step.key for step in steps if step.key.kind is Kind.SECRET)
            self.refresh_engines()
            await asyncio.gather(*(engine.wait_refreshed() for engine in self._lifecycle_engines))
            for location in watched:
                monitor.notice(location, frozenset())
            noticed = watched
        if noticed:
            await monitor.check_noticed()
        return bool(noticed) and monitor.health_changed

    def _requeue_dependents(self, name: str, plan: Plan | None, ended: Report, *, changed: bool) -> None:
        """Requeue other sources that the run of ``name`` may affect; ``changed``: its revision changed resources.

        A refusal may end when this source adds or removes a resource; members of this source's GVCs move with the
        locations of the GVC.
        """
        done = ended.steps > 0
        others = [(other, state) for other, state in self.states.items() if other != name]
        if plan is None or not others or not (done or changed):
            return
        moved = moved_members(self.records, plan.steps if done else ())
        for other, state in others:
            after = state.with_more_pending(moved.get(other, frozenset()))
            if state.refused_commit or after is not state:
                self.sources_to_requeue.add(other)
            self.states[other] = after.with_refusal("")

    async def _poll(self, name: str, preempted: Preempted) -> Report | None:
        pipeline = self.pipelines[name]
        if (suspended := self._report_suspended(name)) is not None:
            return suspended
        # A repository on this machine is read in place.
        if not pipeline.source.local:
            await asyncio.to_thread(pipeline.source.refresh)
        verified = pipeline.source.settings.verify is not None
        if await asyncio.to_thread(self.has_nothing_to_do, name) if verified else self.has_nothing_to_do(name):
            self.conditions.set(name, REACHABLE)
            return None
        return await self._run(name, REASON_POLL, preempted, None)

    def has_nothing_to_do(self, name: str) -> bool:
        """Whether the source ``name`` needs no run now. Raises SourceError."""
        return self.pipelines[name].has_nothing_to_do(self.states[name])

    def sources_to_repoll(self) -> list[str]:
        """Sources with steps that wait for a change without an event, such as the health of another resource."""
        return [name for name, state in self.states.items() if state.must_repoll]

    def has_newer_revision(self, name: str, revision: str) -> bool:
        """Whether the source is at another revision than ``revision``, as far as this host knows."""
        return self.pipelines[name].has_newer_revision(revision)

    def flush(self, name: str, *, force: bool = False) -> bool:
        """Write the status of the source ``name`` to its branch if due; returns whether it was written."""
        return self.writers[name].flush(force=force)

    def take_status_branches(self) -> None:
        """Let the next write of status replace that of other daemons on the branches of all sources."""
        for writer in self.writers.values():
            writer.take_over()

    def next_attempt(self) -> float | None:
        """Time of the next attempt of a failed step (seconds since the epoch), None if there is none."""
        return self.records.failures.next_attempt()

    def _report_suspended(self, name: str) -> Report | None:
        """The report of a suspended source, else None; sets its conditions, also whether it is pinned."""
        end_expired(self.records, self.conditions.append_events)
        pin = self.records.pins.get(name)
        suspension = self.records.suspensions.get(source_target(name))
        conditions = []
        if pin is not None:
            conditions.append(make_condition(ConditionType.PINNED, True, Reason.PINNED, pinned_by(pin)))
        if suspension is not None:
            conditions.append(make_condition(ConditionType.SUSPENDED, True, Reason.SUSPENDED, suspended_by(suspension)))
        self.conditions.set(name, *conditions)
        over = {ConditionType.PINNED, ConditionType.SUSPENDED} - {item.type for item in conditions}
        for kind in over & {scope_condition.type for scope_condition in self.records.conditions.get(name)}:
            self.records.conditions.drop(name, kind)
        return None if suspension is None else report.make_suspended_report(name, suspended_by(suspension))

    def next_end(self) -> float | None:
        """The seconds until the next suspension or hold of requests ends, None if none does."""
        return next_expiry(self.records)

    def _read(self, name: str, reason: str) -> PlannedRevision:
        pipeline = self.pipelines[name]
        # A bug is reported with the revision that this run read, or with none.
        self.states[name] = self.states[name].with_revision(None)
        pipeline.source.refresh()
        revision = pipeline.current_revision()
        self.states[name] = self.states[name].with_revision(revision)
        # The daemon checks the secrets on this host at intervals: a commit costs the same with any number of them.
        return pipeline.plan_current(revision, self.states[name], keep_cache=True, check_host=reason != REASON_POLL)

    def _record_crash(self, name: str, error: Exception, reason: str) -> Report:
        """Record a bug that ended the work for one source; it is tried again later, and other sources go on."""
        read = self.states[name].revision
        revision = str(read) if read is not None else ""
        bug = internal_error(error, f"source {name}", revision)
        self.states[name] = self.states[name].after_crash(self.clock.monotonic(), self.settings.retry)
        ended = report.internal_error(name, revision, bug)
        self.conditions.internal_error(name, bug, ended, reason)
        return ended
