"""The engine of a location on this machine: it performs steps, runs workloads and reports what it observes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from reconciler.bugs import contained, internal_error
from reconciler.engines.context import EngineContext
from reconciler.engines.deployment import DeploymentTarget, Execution
from reconciler.engines.domain_status import DomainReport
from reconciler.engines.host.autoscaling.scaling import Scaling
from reconciler.engines.host.cron.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import ENDPOINTS, Endpoints
from reconciler.engines.host.dataplane.publisher import ServicePublisher
from reconciler.engines.host.decisions.availability import is_being_deleted
from reconciler.engines.host.decisions.execution_results import ExecutionCondition
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.disk.ownership import make_private
from reconciler.engines.host.ephemeral_storage import EphemeralStorage
from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.image_gate import ImageGate
from reconciler.engines.host.images.tags import RegistryClient
from reconciler.engines.host.location_controller import LocationController
from reconciler.engines.host.logs.collector import Collector, LogLimits
from reconciler.engines.host.metrics.scraper import Scraper, Target, find_targets
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template import (
    PlatformSettings,
    ReplicaTemplate,
    TemplateBuilder,
)
from reconciler.engines.host.provisioning.template_store import TemplateFiles, TemplateStore
from reconciler.engines.host.provisioning.tokens import Tokens
from reconciler.engines.host.replica_store import Store
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.services import HostServices
from reconciler.engines.host.snapshot_export.exporter import SnapshotExporter
from reconciler.engines.host.spec import Type
from reconciler.engines.host.state_migration import migrate_state
from reconciler.engines.host.status import StatusContext, ending_message, with_message, workload_status
from reconciler.engines.host.volumes.space import reserve_of
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.host.volumesets.commands import VolumeCommands
from reconciler.engines.host.volumesets.releases import Releases
from reconciler.engines.host.volumesets.volume_sets import VolumeSets, as_recorded
from reconciler.engines.host.volumesets.watcher import VolumeWatcher
from reconciler.engines.protocol import EngineEvent, Observation, Outcome, ReplicaCounts, Result
from reconciler.engines.run_command import RunCronWorkload, check_run, parse_run
from reconciler.engines.target_metrics import TargetMetrics
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volume_commands import parse_volume_command
from reconciler.engines.volumes import rejection
from reconciler.errors import EngineError, RecordsError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Specification, read_specification
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.sql import stored_key
from reconciler.tasks import cancel_and_wait

MAX_EVENTS = 1000
"""The number of events that wait for the daemon; the oldest ones are dropped."""


class HostEngine:
    """Runs the workloads of one location with ``runtime``; all its files are below ``root``.

    ``perform`` sets the desired state and returns; ``observe`` shows the progress. A deletion is performed repeatedly:
    its step waits with the reason Terminating until the resource is gone. ``registry`` is asked in place of the
    registries that images name.
    """

    name = "host"
    parallel = 16
    immediate = False
    can_drift = True

    def __init__(
        self, site: EngineContext, root: Path, runtime: Runtime, registry: RegistryClient | None = None
    ) -> None:
        settings, clock = site.settings, site.clock
        self._context, self._root = site, root
        self._runtime = runtime
        self._claims = VolumeClaims(site.records, site.location, settings.org)
        self._tokens = Tokens(root / "tokens")
        self._builder = TemplateBuilder(
            self._claims, site.records, self._tokens, _platform_settings(site, runtime), clock
        )
        self._templates = TemplateStore(TemplateFiles(root / "templates", self._tokens))
        files = Files(root, site.secrets, settings.scheme)
        self._volumes = self._make_volumes()
        self._volume_commands = VolumeCommands(root, self._volumes, clock, site.records.commands.is_open)
        self._provisioner = Provisioner(files, site.secrets, runtime, settings.host, self._templates, self._volumes)
        self.endpoints = Endpoints(root / ENDPOINTS, runtime.addresses, runtime.publish)
        logs = LogLimits(settings.host.log_budget << 20, settings.host.log_retention)
        self._collector = Collector(root / "logs", site.location, clock, logs)
        self._prober = Prober(runtime, clock, lambda verdict: self._controller.on_verdict(verdict))
        self._news: list[EngineEvent] = []
        self._changed = asyncio.Event()
        self._domains: Mapping[Key, DomainReport] | None = None
        self._publisher = ServicePublisher(
            site, root, self._append_event, self._wake, self._changed.set, self._collector
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
        self._exporter = SnapshotExporter(root, settings.snapshots.export.restic, clock, self._append_event)
        self._images = ImageGate(clock, self._reload, self._append_event, registry)
        self._working: list[asyncio.Task[None]] = []
        self._open_requested = False
        self._opening = asyncio.Lock()

    def _make_volumes(self) -> VolumeSets:
        host, clock = self._context.settings.host, self._context.clock
        store = VolumeStore(self._root, host.volumes, clock, reserve_of(host.disk_reserve))
        return VolumeSets(
            self._claims,
            Releases(self._root, store, clock),
            lambda: self._changed.set(),
            lambda: self._controller.retry_starts(),
            lambda holder: self._controller.stop(*parse_holder(holder)),
            self._append_event,
        )

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
        await self._volumes.open([each for each in records if each.key.kind is Kind.VOLUMESET])
        # Before any replica is created: what a new one has by then would be removed too.
        await self._controller.prune()
        for record in records:
            if record.key.kind is Kind.WORKLOAD:
                self._reload_workload(record)
                if is_being_deleted(self._controller.replicas(record.key)):
                    self._controller.want(record.key, None)
        if records or self._context.decommissioning:
            recorded = {record.key for record in records} | self._journaled_keys()
            self._controller.stop_unrecorded(recorded)
            self._images.forget_others(recorded)
            self._templates.forget_others(recorded)
        storage = self._storage.run(self._controller.live_replicas, self._controller.evict)
        clock, volumes = self._context.clock, self._volumes
        watcher = VolumeWatcher(self._root, volumes, self._volume_commands, clock, self._append_event)
        work = (
            self._upkeep.run(),
            watcher.run(),
            self._scaling.run(self._wanted_templates, self._want),
            storage,
            self._controller.check_files(),
            self._images.run(),
            *self._publisher.work(),
            self._scraper.run(self._metrics_targets),
            self._exporter.run(),
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

    def refresh(self) -> None:
        """Replace replicas whose variables, secrets or restarts are not the newest, and reread holds of requests."""
        if self._working:
            self._publisher.refresh()
        for record in self._records_here() if self._working else ():
            controller = self._controller.workloads.get(record.key)
            if controller is not None and controller.wanted is not None:
                self._reload_workload(record)

    def _wake(self, key: Key) -> None:
        """Start a replica for a request that waits."""
        self._scaling.wake(key)
        self._reload(key)

    def _reload(self, key: Key) -> None:
        """Want the workload ``key`` again, unless it was deleted."""
        record = self._claims.record(key)
        controller = self._controller.workloads.get(key)
        if record is not None and controller is not None and controller.wanted is not None:
            self._reload_workload(record)
        self._changed.set()

    def _reload_workload(self, record: Record) -> None:
        """Want the workload as it is recorded, with its current inputs; a failure affects no other workload."""
        try:
            self._read_tags(record.key, record.body, record.revision)
            self._want(self._template(record.key, self._templates.specification(record), record.version, record.digest))
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
            known = error if isinstance(error, EngineError) else internal_error(error, f"workload {record.key}")
            self._append_event(EngineEvent(record.key, Reason.WORKLOAD_ERROR, f"{known.reason}: {known}"))

    def _journaled_keys(self) -> set[Key]:
        """Keys of steps that were started here and not recorded: they are performed again, unless by another engine."""
        rows = () if self._context.decommissioning else self._context.records.journal.open()
        return {stored_key(row.key, "journal") for row in rows if row.location == self._context.location}

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
        observed = [self._observation(key) for key in sorted(self._controller.workloads)]
        volumesets = map(self._exporter.with_condition, self._volumes.observations())
        return [*(each for each in observed if each is not None), *volumesets]

    async def perform(self, step: Step) -> Outcome:
        """Set the desired state of ``step``. Raises EngineError."""
        await self.open()
        if step.key.kind is Kind.WORKLOAD:
            return self._workload(step)
        if step.key.kind is Kind.VOLUMESET:
            return await self._volumes.perform(step)
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
            return self._run(key, ask, command_id)
        return await self._volume_commands.perform(key, ask, command_id)

    def _run(self, key: Key, ask: RunCronWorkload, command_id: str) -> dict[str, Any]:
        here, record = self._context.location, self._claims.record(key)
        limit = check_run(key, read_specification(record.body), ask) if record is not None else 0
        controller = self._controller.workloads.get(key)
        if controller is None or controller.wanted is None or controller.executions is None:
            raise EngineError(f"there is no {key} at {here}", reason=Reason.NOT_FOUND, retry=False)
        execution = controller.executions.run(controller.wanted, ask.container_overrides, limit, command_id)
        controller.wake()
        created: dict[str, Any] = msgspec.to_builtins(execution)
        return created

    def _workload(self, step: Step) -> Outcome:
        key, past = step.key, self._claims.record(step.key)
        spec = read_specification(step.body) if step.action is not Action.DELETE else None
        also = tuple(self._claims.affected_volumesets(step, spec, past))
        made = self._templates.newest.get(key)
        replaced = step.action is Action.REPLACE and made is not None and made.desired.digest != step.digest
        if spec is None or replaced:
            self._publisher.withdraw(key)
            self._controller.want(key, None)
            if not self._controller.is_removed(key):
                return self._terminating(step)
            self._forget(key)
        if spec is None:
            return Outcome(step.id, Result.APPLIED, also=self._volumes.update(also))
        self._read_tags(key, step.body, self._claims.revision(past.source) if past is not None else "")
        self._want(self._template(key, spec, step.version, step.digest))
        return Outcome(step.id, Result.APPLIED, seen=self._observation(key), also=self._volumes.update(also))

    def _terminating(self, step: Step) -> Outcome:
        controller = self._controller.workloads.get(step.key)
        message = ending_message(controller.last_error if controller is not None else "", step.location)
        return Outcome(step.id, Result.WAITING, Reason.TERMINATING, message, seen=self._observation(step.key))

    def _template(self, key: Key, spec: Specification, version: int, digest: str) -> ReplicaTemplate:
        images = self._images.digests(key, version) if spec.support_dynamic_tags else ()
        template = self._builder.of(key, spec, version, digest, images)
        self._runtime.prepare(template.desired)
        in_use = {(each.version, each.config_hash) for each in self._controller.replicas(key)}
        return self._templates.add(template, in_use)

    def _want(self, template: ReplicaTemplate) -> None:
        key = template.desired.key
        replicas = self._controller.replicas(key)
        self._publisher.publish(template)
        wanted = self._scaling.spec_at_scale(template, replicas)
        versions, images = {each.version for each in replicas}, self._controller.images_of(key, wanted.version)
        self._controller.want(key, self._images.admit(template, wanted, versions, images))

    def _read_tags(self, key: Key, body: bytes, revision: str) -> None:
        self._publisher.read_tags(key, body)
        self._volumes.releases.read(key, body, revision)

    def _forget(self, key: Key) -> None:
        self._volumes.releases.forget(key)
        self._images.forget(key)
        self._publisher.forget(key)
        self._templates.forget(key)
        self._scaling.forget(key)
        self._tokens.forget(key)

    def _observation(self, key: Key) -> Observation | None:
        template, controller = self._templates.newest.get(key), self._controller.workloads.get(key)
        if template is None or controller is None:
            return None
        wanted, location = template.desired, self._context.location
        if controller.wanted is None:
            record = self._claims.record(key)
            state = with_message(record.state, ending_message(controller.last_error)) if record is not None else b"{}"
            return Observation(key, location, Health.DELETING, state, wanted.digest, wanted.version)
        health, state = Health.UNKNOWN, b"{}"
        with contained(f"status of {key}"):
            errors = filter(None, (self._images.error(key), self._publisher.error(key), controller.last_error))
            context = self._status_context(template, "; ".join(errors))
            health, deployment = workload_status(controller.wanted, tuple(controller.replicas.values()), context)
            state = msgspec.json.encode(deployment)
        return Observation(key, location, health, state, wanted.digest, wanted.version)

    def _status_context(self, template: ReplicaTemplate, error: str) -> StatusContext:
        known, domain = template.env_context, self._context.settings.endpoint_domain
        place = DeploymentTarget(known.location, known.alias, template.desired.gvc_version, domain)
        advised = self._scaling.recommendations(template.desired)
        key, wanted = template.desired.key, template.desired
        lacking = (
            *self._runtime.limitations(wanted),
            *self._publisher.limitations(wanted),
            *self._provisioner.limitations(template),
            *self._scraper.limitations(wanted),
        )
        now, upkeep = self._context.clock.monotonic(), self._upkeep
        created, address = self._templates.created(key), self._publisher.address(key)
        images = self._images.resolved(key, wanted.version)
        return StatusContext(
            place,
            now,
            upkeep.epoch,
            error,
            lacking,
            upkeep.clock_jumped,
            advised,
            created,
            images,
            address,
            self._scaling.unknown(key),
            self._publisher.domain_endpoints(key),
            *self._executions(key),
        )

    def _executions(self, key: Key) -> tuple[tuple[Execution, ...], tuple[ExecutionCondition, ...]]:
        controller = self._controller.workloads.get(key)
        found = controller.executions if controller is not None else None
        return (found.status(), found.conditions()) if found is not None else ((), ())

    def _records_here(self) -> list[Record]:
        if self._context.decommissioning:
            return []
        found = self._context.records.applied.items_at(self._context.location, self.name)
        return [record for record in found if record.key.kind in (Kind.WORKLOAD, Kind.VOLUMESET)]

    def _append_event(self, news: EngineEvent) -> None:
        self._news = [*self._news[-MAX_EVENTS + 1 :], news]
        self._changed.set()

    def _metrics_targets(self) -> Iterator[Target]:
        workloads = self._controller.workloads.values()
        replicas = (replica for each in workloads for replica in each.replicas.values())
        return find_targets(replicas, self._templates.newest)

    def _wanted_templates(self) -> list[ReplicaTemplate]:
        """The newest template of each workload that can be scaled and is not being deleted."""
        workloads, newest = self._controller.workloads, self._templates.newest
        running = {key for key, controller in workloads.items() if controller.wanted is not None}
        scaled = ((key, template) for key, template in newest.items() if template.desired.type is not Type.CRON)
        return [template for key, template in scaled if key in running]


def _platform_settings(site: EngineContext, runtime: Runtime) -> PlatformSettings:
    settings = site.settings
    return PlatformSettings(
        settings.org,
        site.location,
        settings.endpoint_domain,
        settings.scheme,
        runtime.name,
        runtime.resizes,
        settings.cloud_accounts,
        uses_images=runtime.image_store is not None,
    )


def _plain(step: Step) -> Observation:
    return Observation(step.key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)
