"""The engine of a location on this machine: it performs steps, runs workloads and reports what it observes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from reconciler.engines.command_types import parse_command
from reconciler.engines.context import EngineContext
from reconciler.engines.domain_status import DomainReport
from reconciler.engines.host.decisions.availability import is_being_deleted
from reconciler.engines.host.disk.ownership import make_private
from reconciler.engines.host.location import HostLocation
from reconciler.engines.host.paths import ENGINE
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.volumesets.volume_sets import as_recorded
from reconciler.engines.host.workloads.desired import DesiredWorkloads
from reconciler.engines.host.workloads.observer import WorkloadObserver
from reconciler.engines.images.tags import RegistryClient
from reconciler.engines.protocol import EngineEvent, Observation, Outcome, ReplicaCounts, Result
from reconciler.engines.target_metrics import TargetMetrics
from reconciler.engines.workload.reachability import Reachability
from reconciler.engines.workload_commands import RunCronWorkload, StopWorkloadReplica
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason


class HostEngine:
    """Runs the workloads of one location with ``runtime``; all its files are below ``root``.

    ``perform`` sets the desired state and returns; ``observe`` shows the progress. A deletion is performed repeatedly:
    its step waits with the reason Terminating until the resource is gone. ``registry`` is asked in place of the
    registries that images name.
    """

    name = ENGINE
    parallel = 16
    immediate = False
    can_drift = True

    def __init__(
        self, context: EngineContext, root: Path, runtime: Runtime, registry: RegistryClient | None = None
    ) -> None:
        self._context = context
        self.location = HostLocation(context, root, runtime, registry)
        self._desired, self._observer = DesiredWorkloads(self.location), WorkloadObserver(self.location)
        self.location.signals.connect((*self.location.parts, self._desired))
        self._domains: Mapping[Key, DomainReport] | None = None
        self._open_requested = False
        self._opening = asyncio.Lock()
        self._reachability = Reachability(
            context.clock, Reason.RUNTIME_UNAVAILABLE, self._ask_runtime, self.location.signals.report_change
        )

    async def open(self) -> None:
        """Adopt what an earlier daemon left running, and continue from the records. Raises EngineError.

        After a failure nothing is open, and it may be called again.
        """
        self._open_requested = True
        await self._reachability.check()  # who asks the runtime has the lock meanwhile
        async with self._opening:
            if not self.location.works:
                async with self._reachability.watch(opens=True):
                    await self._take_over()

    async def _ask_runtime(self) -> None:
        async with self._opening:
            if not self.location.works:
                await self._take_over()

    async def _take_over(self) -> None:
        try:
            await self._adopt()
        except BaseException:
            await self.location.close()
            raise

    async def _adopt(self) -> None:
        make_private(self.location.root)
        records = self._records_here()
        await self.location.open(records)
        controller = self.location.controller
        for record in (record for record in records if record.key.kind is Kind.WORKLOAD):
            self._desired.want_recorded(record)
            if is_being_deleted(self.location.replicas(record.key)):
                controller.end(record.key)
        if records or self._context.decommissioning:
            self.location.retain({record.key for record in records} | self._journaled_keys())
        self.location.begin_work()

    async def close(self) -> None:
        """Stop all work of the engine; containers keep running."""
        await self._reachability.close()
        if self.location.works:
            await self.location.close()
            await self.location.collector.collect()

    def begin_schedules(self) -> None:
        """Run cron workloads and the schedules of snapshots, and delete snapshots that are over, from now on."""
        self.location.signals.begin_schedules()

    def refresh(self) -> None:
        """Replace replicas whose variables, secrets or restarts are not the newest, and reread holds of requests."""
        if self.location.works:
            self.location.refresh()
            for record in self._records_here():
                self._desired.want_existing(record)

    async def wait_refreshed(self) -> None:
        """Return at once: ``refresh`` has set what is wanted."""

    def _journaled_keys(self) -> set[Key]:
        """Keys of steps that were started here and not recorded: they are performed again, unless by another engine."""
        return set() if self._context.decommissioning else self._context.records.journaled_keys()

    def news(self) -> list[EngineEvent]:
        """The events since the last call."""
        return self.location.signals.take_events()

    def replica_counts(self) -> ReplicaCounts:
        """The number of replicas that run and that are wanted."""
        return self.location.controller.replica_counts()

    def domains(self) -> Mapping[Key, DomainReport] | None:
        """What is served of the domains that lead to workloads here, as of the last ``observe``."""
        return self._domains

    def metrics(self) -> list[TargetMetrics]:
        """The last scrape of each running container that declares metrics."""
        return self.location.scraper.results()

    def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields the workloads that have changed; empty: anything here has."""
        return self.location.signals.changes()

    async def observe(self) -> list[Observation]:
        """Observe all workloads, those being deleted included, and all volume sets. Raises EngineError."""
        return await self._observe(None)

    async def observe_some(self, keys: Collection[Key]) -> list[Observation]:
        """Observe the workloads among ``keys``, and all volume sets, which change with them. Raises EngineError."""
        return await self._observe(keys)

    async def _observe(self, keys: Collection[Key] | None) -> list[Observation]:
        if self._open_requested:
            await self.open()
        self._domains = self.location.publisher.domains() if self.location.works else None
        if not self.location.works:
            return [as_recorded(record) for record in self._records_here()]
        workloads = self._observer.observe_all() if keys is None else self._observer.observe_some(keys)
        return [*workloads, *self.location.volumes.observations()]

    async def perform(self, step: Step) -> Outcome:
        """Set the desired state of ``step``. Raises EngineError."""
        await self.open()
        if step.key.kind is Kind.WORKLOAD:
            return self._desired.perform(step)
        if step.key.kind is Kind.VOLUMESET:
            return await self.location.volume_sets.perform(step)
        return Outcome(
            step.id, Result.APPLIED, seen=_make_observation(step) if step.action is not Action.DELETE else None
        )

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """Start an execution on demand, stop a replica or change a volume; returns it. Raises EngineError."""
        ask = parse_command(key, name, spec, self._context.location)
        await self.open()
        if isinstance(ask, RunCronWorkload):
            return self._desired.run(key, ask, command_id)
        if isinstance(ask, StopWorkloadReplica):
            return await self.location.controller.stop_replica(key, ask.replica)
        return await self.location.volumes.commands.perform(key, ask, command_id)

    def _records_here(self) -> list[Record]:
        if self._context.decommissioning:
            return []
        records = self._context.records.all_here(self.name)
        return [record for record in records if record.key.kind in (Kind.WORKLOAD, Kind.VOLUMESET)]


def _make_observation(step: Step) -> Observation:
    return Observation(step.key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)
