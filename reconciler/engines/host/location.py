"""A location on this machine: its parts, in the order in which their hooks are called."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterator
from pathlib import Path

from reconciler.engines.context import EngineContext
from reconciler.engines.host.autoscaling.scaling import Scaling
from reconciler.engines.host.check_container import CheckContainers
from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.ephemeral_storage import EphemeralStorage
from reconciler.engines.host.controllers.location import LocationController
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.controllers.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import ENDPOINTS, Endpoints
from reconciler.engines.host.dataplane.publisher import ServicePublisher
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.images.gate import ImageGate
from reconciler.engines.host.logs.collector import Collector, LogLimits
from reconciler.engines.host.metrics.scraper import RunningTargets, Scraper
from reconciler.engines.host.metrics.usage_sampler import UsageSampler
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.port_watch import PortWatch
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateFiles, TemplateStore
from reconciler.engines.host.provisioning.tokens import FOLDER, WorkloadTokens
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.volumesets.volume_controller import VolumeController, make_volume_sets
from reconciler.engines.images.tags import RegistryClient
from reconciler.engines.usage_history import FOLDER as FOLDER_OF_USAGE
from reconciler.engines.usage_history import UsageHistory
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.model.record import Record
from reconciler.tasks import cancel_and_wait


class HostLocation:
    """The parts of the location of ``context``, whose files are below ``root`` and whose containers are in ``runtime``.

    ``registry`` is asked in place of the registries that images name. A new part is one line in ``__init__``, and one
    in ``_order``.
    """

    def __init__(self, context: EngineContext, root: Path, runtime: Runtime, registry: RegistryClient | None) -> None:
        settings, clock, host = context.settings, context.clock, context.settings.host
        self.context, self.root, self.runtime = context, root, runtime
        self.signals = signals = LocationSignals()
        self.claims = VolumeClaims(context.records, settings.org)
        self.tokens = WorkloadTokens(root / FOLDER, context.location)
        self.templates = TemplateStore(TemplateFiles(root / "templates", self.tokens))
        self.volume_sets = make_volume_sets(context, root, self.claims, signals)
        files = Files(root, context.secrets, settings.scheme)
        self.provisioner = Provisioner(files, context.secrets, runtime, host, self.templates, self.volume_sets)
        self.endpoints = Endpoints(root / ENDPOINTS, runtime.addresses, runtime.publish)
        limits = LogLimits(host.log_budget << 20, host.log_retention)
        self.collector = Collector(root / "logs", context.location, clock, limits)
        checks = CheckContainers(runtime, self.provisioner, self.collector, clock)
        self.volumes = VolumeController(context, root, self.volume_sets, runtime.exec, checks)
        self.publisher = ServicePublisher(context, root, signals, self.collector)
        self.endpoints.listen(self.publisher.dataplane.update)
        self.controller = LocationController(self._controller_context())
        self.scaling = Scaling(runtime, self.publisher.dataplane, self, clock, signals, root / "usage")
        self.scraper = Scraper(host.metrics, RunningTargets(self.controller, self.templates.newest), clock, signals)
        history = UsageHistory(root / FOLDER_OF_USAGE)
        self.sampler = UsageSampler(runtime, self.publisher.dataplane, self, clock, history)
        self.images = ImageGate(context, root, runtime, self.controller, signals, registry)
        self.upkeep = Housekeeping(self.collector, clock, context.location, signals, runtime.take_events)
        self.port_watch = PortWatch(runtime, self.controller.current_replicas, clock, signals)
        storage = EphemeralStorage(root / "scratch", runtime.written_paths, clock, self.controller)
        self.parts = self._order(storage)
        self._working: list[asyncio.Task[None]] = []

    def _order(self, storage: EphemeralStorage) -> tuple[LocationPart, ...]:
        # Requests and scale are known before images, and all of them before the controller starts anything. What
        # opens begins with what others stand on: volumes before the replicas that use them.
        return (
            self.publisher,
            self.volumes,
            self.provisioner,
            self.scraper,
            self.scaling,
            self.sampler,
            self.images,
            self.templates,
            self.tokens,
            self.upkeep,
            storage,
            self.port_watch,
            self.controller,
        )

    def _controller_context(self) -> ControllerContext:
        clock, host = self.context.clock, self.context.settings.host
        return ControllerContext(
            signals=self.signals,
            runtime=self.runtime,
            provisioner=self.provisioner,
            store=ReplicaStore(self.root / "replicas"),
            endpoints=self.endpoints,
            probes=Prober(self.runtime, clock, self.signals.report_probe),
            logs=self.collector,
            clock=clock,
            timing=Timing(host.termination_scale),
            rng=random.Random(),
            cron_starts=StartLimit(host.cron_starts),
            traffic=self.publisher.dataplane,
        )

    @property
    def works(self) -> bool:
        """Whether it is open."""
        return bool(self._working)

    async def open(self, records: Collection[Record]) -> None:
        """Open the parts. Raises EngineError, and some may be open then."""
        for part in self.parts:
            await part.open([*records])

    def begin_work(self) -> None:
        """Do from now on what the parts do by themselves."""
        self._working = [asyncio.create_task(work) for part in self.parts for work in part.work()]

    async def close(self) -> None:
        """Close the parts, however far they are open; containers keep running."""
        working, self._working = self._working, []
        await cancel_and_wait(working, f"the host engine of {self.context.location}")
        for part in self.parts:
            await part.close()

    def refresh(self) -> None:
        """Read again what the records have beside workloads. Raises RecordsError."""
        for part in self.parts:
            part.refresh()

    def read_manifest(self, key: Key, body: bytes, revision: str) -> None:
        """Take from the manifest of a workload what its template does not have."""
        for part in self.parts:
            part.read_manifest(key, body, revision)

    def want(self, template: ReplicaTemplate) -> None:
        """Want the workload of a template: each part takes what the one before it returns. Raises EngineError."""
        spec = template.desired
        for part in self.parts:
            spec = part.want(template, spec)

    def end(self, key: Key) -> None:
        """Begin to end a workload."""
        for part in self.parts:
            part.end(key)

    def forget(self, key: Key) -> None:
        """Remove what belongs to a workload of which nothing runs any more. Raises EngineError."""
        for part in self.parts:
            part.forget(key)

    def retain(self, keys: Collection[Key]) -> None:
        """Forget all workloads but ``keys``: those that ended while no daemon ran. Raises EngineError."""
        for part in self.parts:
            part.retain(keys)

    def limitations(self, template: ReplicaTemplate) -> Iterator[str]:
        """A sentence for each wish of a workload that is not fulfilled here, first those of the runtime."""
        yield from self.runtime.limitations(template.desired)
        for part in self.parts:
            yield from part.limitations(template)

    def error(self, key: Key) -> str:
        """What fails for a workload; "" if nothing."""
        return "; ".join(filter(None, (part.error(key) for part in self.parts)))

    def replicas(self, key: Key) -> tuple[Replica, ...]:
        """The replicas of a workload, including those that an earlier daemon left."""
        return self.controller.replicas(key)

    def find_desired_spec(self, key: Key) -> WorkloadSpec | None:
        """What its controller has to make of a workload; None if it is unknown or being deleted."""
        controller = self.controller.workloads.get(key)
        return controller.wanted if controller is not None else None

    def scalable(self) -> list[ReplicaTemplate]:
        """The newest template of each workload that can be scaled and is not being deleted."""
        scaled = ((key, it) for key, it in self.templates.newest.items() if it.desired.type is not Type.CRON)
        return [template for key, template in scaled if self.find_desired_spec(key) is not None]
