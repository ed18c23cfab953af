"""The engine of a location on this machine: it performs steps, runs workloads and reports what it observes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.engines.context import EngineContext
from reconciler.engines.domain_status import DomainReport
from reconciler.engines.host.autoscaling.scaling import Scaling
from reconciler.engines.host.check_container import CheckContainers
from reconciler.engines.host.controllers.ephemeral_storage import EphemeralStorage
from reconciler.engines.host.controllers.location import LocationController
from reconciler.engines.host.controllers.replica_store import Store
from reconciler.engines.host.cron.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import ENDPOINTS, Endpoints
from reconciler.engines.host.dataplane.publisher import ServicePublisher
from reconciler.engines.host.decisions.availability import is_being_deleted
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.disk.ownership import make_private
from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.images.gate import ImageGate
from reconciler.engines.host.images.tags import RegistryClient
from reconciler.engines.host.logs.collector import Collector, LogLimits
from reconciler.engines.host.metrics.scraper import Scraper, Target, find_targets
from reconciler.engines.host.paths import ENGINE
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateFiles, TemplateStore
from reconciler.engines.host.provisioning.tokens import FOLDER, Tokens
from reconciler.engines.host.runtimes.protocol import ExecResult, Runtime
from reconciler.engines.host.services import HostServices
from reconciler.engines.host.state_migration import migrate_state
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.host.volumesets.verifier import CheckRun, CheckRunner
from reconciler.engines.host.volumesets.volume_controller import VolumeCallbacks, VolumeController
from reconciler.engines.host.volumesets.volume_sets import as_recorded
from reconciler.engines.host.workloads.desired import DesiredWorkloads
from reconciler.engines.host.workloads.observer import WorkloadObserver
from reconciler.engines.host.workloads.parts import LocationParts, platform_settings
from reconciler.engines.protocol import EngineEvent, Observation, Outcome, ReplicaCounts, Result
from reconciler.engines.run_command import RunCronWorkload, parse_run
from reconciler.engines.target_metrics import TargetMetrics
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volume_commands import parse_volume_command
from reconciler.engines.volumes import rejection
from reconciler.engines.workload.template import (
    TemplateBuilder,
)
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.tasks import cancel_and_wait

MAX_EVENTS = 1000
"""The number of events that wait for the daemon; the oldest ones are dropped."""


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
        self, site: EngineContext, root: Path, runtime: Runtime, registry: RegistryClient | None = None
    ) -> None:
        settings, clock = site.settings, site.clock
        self._context, self._root, self._runtime = site, root, runtime
        self._claims = VolumeClaims(site.records, settings.org)
        self._tokens = Tokens(root / FOLDER, site.location)
        fixed = platform_settings(site, runtime)
        self._builder = TemplateBuilder(self._claims, site.records, self._tokens.of, fixed, clock)
        self._templates = TemplateStore(TemplateFiles(root / "templates", self._tokens))
        files = Files(root, site.secrets, settings.scheme)
        self._volumes = VolumeController(site, root, self._claims, self._volume_callbacks())
        self._provisioner = Provisioner(
            *(files, site.secrets, runtime, settings.host, self._templates, self._volumes.sets)
        )
        self.endpoints = Endpoints(root / ENDPOINTS, runtime.addresses, runtime.publish)
        logs = LogLimits(settings.host.log_budget << 20, settings.host.log_retention)
        self._collector = Collector(root / "logs", site.location, clock, logs)
        self._prober = Prober(runtime, clock, lambda verdict: self._controller.on_verdict(verdict))
        self._news: list[EngineEvent] = []
        self._changed = asyncio.Event()
        self._domains: Mapping[Key, DomainReport] | None = None
        self._publisher = ServicePublisher(
            site, root, self._append_event, lambda key: self._desired.wake(key), self._changed.set, self._collector
        )
        self.endpoints.listen(self._publisher.dataplane.update)
        self._scaling = Scaling(runtime, self._publisher.dataplane, clock, self._append_event, root / "usage")
        self._scraper = Scraper(settings.host.metrics, clock, self._append_event)
        self._upkeep = Housekeeping(
            *(self._collector, clock, site.location, self._append_event, runtime.take_events),
            on_jump=lambda: self._controller.check_schedules(),
        )
        self._storage = EphemeralStorage(root / "scratch", runtime.written_paths, clock)
        self._controller = LocationController(self._tools())
        self._images = ImageGate(clock, lambda key: self._desired.reload_key(key), self._append_event, registry)
        parts = self._parts()
        self._observer, self._desired = WorkloadObserver(parts), DesiredWorkloads(parts)
        self._working: list[asyncio.Task[None]] = []
        self._open_requested = self._schedules_begun = False
        self._opening = asyncio.Lock()

    def _volume_callbacks(self) -> VolumeCallbacks:
        return VolumeCallbacks(
            lambda: self._changed.set(),
            lambda: self._controller.retry_starts(),
            lambda holder: self._controller.stop(*parse_holder(holder)),
            self._append_event,
            self._runtime.exec,
            CheckRunner(lambda key: self._provisioner.owner(key), self._run_check),
        )

    async def _run_check(self, check: CheckRun, limit: float) -> ExecResult:
        containers = CheckContainers(self._runtime, self._provisioner, self._collector, self._context.clock)
        return await containers.run(check, limit)

    def _parts(self) -> LocationParts:
        return LocationParts(
            self._context, self._runtime, self._claims, self._tokens, self._builder, self._templates,
            self._provisioner, self._volumes.sets, self._controller, self._images, self._publisher, self._scaling,
            self._scraper, self._upkeep, self._append_event, self._changed.set,
        )  # fmt: skip

    def _tools(self) -> HostServices:
        return HostServices(
            runtime=self._runtime,
            provisioner=self._provisioner,
            store=Store(self._root / "replicas"),
            endpoints=self.endpoints,
            probes=self._prober,
            logs=self._collector,
            clock=self._context.clock,
            timing=Timing(self._context.settings.host.termination_scale),
            rng=random.Random(),
            append_event=self._append_event,
            changed=self._changed.set,
            cron_starts=StartLimit(self._context.settings.host.cron_starts),
            image_missing=lambda key: self._images.provide_again(key),
            synchronize=self._publisher.dataplane.synchronize,
            open_requests=self._publisher.dataplane.open_requests,
            counted=self._publisher.dataplane.counted,
            runs_schedules=lambda: self._schedules_begun,
        )

    async def open(self) -> None:
        """Adopt what an earlier daemon left running, and continue from the records. Raises EngineError.

        After a failure nothing is open, and it may be called again.
        """
        self._open_requested = True
        async with self._opening:
            if self._working:
                return
            try:
                await self._take_over()
            except BaseException:
                await self._release()
                raise

    async def _take_over(self) -> None:
        make_private(self._root)
        migrate_state(self._root)
        self._publisher.open()
        await self._controller.open()
        self._images.open(self._context, self._root, self._runtime, self._controller.images)
        records = self._records_here()
        await self._volumes.sets.open([each for each in records if each.key.kind is Kind.VOLUMESET])
        # Before any replica is created: what a new one has by then would be removed too.
        await self._controller.prune()
        for record in records:
            if record.key.kind is Kind.WORKLOAD:
                self._desired.reload(record)
                if is_being_deleted(self._controller.replicas(record.key)):
                    self._controller.want(record.key, None)
        if records or self._context.decommissioning:
            recorded = {record.key for record in records} | self._journaled_keys()
            self._controller.stop_unrecorded(recorded)
            self._images.forget_others(recorded)
            self._templates.forget_others(recorded)
        storage = self._storage.run(self._controller.live_replicas, self._controller.evict)
        work = (
            self._upkeep.run(),
            *self._volumes.work(),
            self._scaling.run(
                self._desired.scalable, self._desired.want, self._desired.rescale, self._controller.replicas
            ),
            storage,
            self._controller.check_files(),
            self._images.run(),
            *self._publisher.work(),
            self._scraper.run(self._metrics_targets),
        )
        self._working = [asyncio.create_task(each) for each in work]

    async def close(self) -> None:
        """Stop all work of the engine; containers keep running."""
        if not self._working:
            return
        await cancel_and_wait(self._working, f"the host engine of {self._context.location}")
        self._working = []
        await self._release()
        await self._collector.collect()

    async def _release(self) -> None:
        await self._publisher.dataplane.close()
        await self._images.close()
        await self._prober.close()
        await self._controller.close()

    def begin_schedules(self) -> None:
        """Run cron workloads and the schedules of snapshots, and delete snapshots that are over, from now on."""
        if not self._schedules_begun:
            self._schedules_begun = True
            self._controller.check_schedules()
            self._volumes.begin_schedules()

    def refresh(self) -> None:
        """Replace replicas whose variables, secrets or restarts are not the newest, and reread holds of requests."""
        if self._working:
            self._publisher.refresh()
        for record in self._records_here() if self._working else ():
            self._desired.reload_existing(record)

    def _journaled_keys(self) -> set[Key]:
        """Keys of steps that were started here and not recorded: they are performed again, unless by another engine."""
        return set() if self._context.decommissioning else self._context.records.journaled_keys()

    def news(self) -> list[EngineEvent]:
        """The events since the last call."""
        news, self._news = self._news, []
        return news

    def replica_counts(self) -> ReplicaCounts:
        """The number of replicas that run and that are wanted."""
        return self._controller.replica_counts()

    def domains(self) -> Mapping[Key, DomainReport] | None:
        """What is served of the domains that lead to workloads here, as of the last ``observe``."""
        return self._domains

    def metrics(self) -> list[TargetMetrics]:
        """The last scrape of each running container that declares metrics."""
        return self._scraper.results()

    async def changes(self) -> AsyncIterator[None]:
        """Yields whenever anything here has changed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def observe(self) -> list[Observation]:
        """Observe all workloads, those being deleted included, and all volume sets. Raises EngineError."""
        if self._open_requested:
            await self.open()
        self._domains = self._publisher.domains() if self._working else None
        if not self._working:
            return [as_recorded(record) for record in self._records_here()]
        return [*self._observer.observe_all(), *self._volumes.observations()]

    async def perform(self, step: Step) -> Outcome:
        """Set the desired state of ``step``. Raises EngineError."""
        await self.open()
        if step.key.kind is Kind.WORKLOAD:
            return self._desired.perform(step)
        if step.key.kind is Kind.VOLUMESET:
            return await self._volumes.sets.perform(step)
        return Outcome(step.id, Result.APPLIED, seen=_plain(step) if step.action is not Action.DELETE else None)

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """Start an execution on demand, or change a volume; returns it. Raises EngineError."""
        if key.kind not in (Kind.WORKLOAD, Kind.VOLUMESET):
            raise rejection(f"a {key.kind} takes no commands")
        ask = parse_run(name, spec) if key.kind is Kind.WORKLOAD else parse_volume_command(name, spec)
        if ask.location != self._context.location:
            raise rejection(f"the command is for {ask.location or 'no location'}; this is {self._context.location}")
        await self.open()
        if isinstance(ask, RunCronWorkload):
            return self._desired.run(key, ask, command_id)
        return await self._volumes.commands.perform(key, ask, command_id)

    def _records_here(self) -> list[Record]:
        if self._context.decommissioning:
            return []
        found = self._context.records.all_here(self.name)
        return [record for record in found if record.key.kind in (Kind.WORKLOAD, Kind.VOLUMESET)]

    def _append_event(self, news: EngineEvent) -> None:
        self._news = [*self._news[-MAX_EVENTS + 1 :], news]
        self._changed.set()

    def _metrics_targets(self) -> Iterator[Target]:
        workloads = self._controller.workloads.values()
        replicas = (replica for each in workloads for replica in each.replicas.values())
        return find_targets(replicas, self._templates.newest)


def _plain(step: Step) -> Observation:
    return Observation(step.key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)
