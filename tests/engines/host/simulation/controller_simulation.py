"""The real controller, store and endpoints, over imaginary programs and a fake clock."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec

from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.location import LocationController
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.controllers.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId, Runtime
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.spec import WorkloadSpec
from tests.engines.host.fake import FakeLogging, FakeProbing, FakeProvisioner, FakeRuntime, Programs, QuickClock
from tests.engines.host.signals import RecordedSignals
from tests.engines.host.simulation.behaviour import containers_of
from tests.engines.host.simulation.schedule import Schedule, wanted_at_first


class InOrder(random.Random):
    """Letters for names so that the names of later replicas come later in the alphabet."""

    def __init__(self) -> None:
        super().__init__(0)
        self._names = 0

    def choices(self, population: str, *, k: int) -> list[str]:  # type: ignore[override]
        """The next name."""
        self._names += 1
        return list(f"r{self._names:04}")


class ControllerSimulation:
    """One location with one workload. ``programs`` and the files outlive a daemon, as on a host."""

    runtime = FakeRuntime

    def __init__(self, root: Path, schedule: Schedule) -> None:
        self.clock = QuickClock()
        self.clock.start()
        self.programs = Programs(self.clock)
        self.news: list[EngineEvent] = []
        self.last = wanted_at_first(schedule)
        self.wanted: WorkloadSpec | None = None
        self._root = root
        self._timing = Timing(schedule.scale)
        self._rng = InOrder()
        self._version = 0
        self._controller: LocationController | None = None
        self._returning: asyncio.Task[None] | None = None

    def make_runtime(self) -> Runtime:
        """The runtime of the next daemon."""
        return self.runtime(self.programs)

    async def open(self) -> None:
        """Let a daemon begin."""
        signals = RecordedSignals(self.news)
        signals.begin_schedules()
        tools = ControllerContext(
            signals=signals,
            runtime=self.make_runtime(),
            provisioner=FakeProvisioner(),
            store=ReplicaStore(self._root / "replicas"),
            endpoints=Endpoints(self._root / "endpoints"),
            probes=FakeProbing(self.programs, self._probed),
            logs=FakeLogging(),
            clock=self.clock,
            timing=self._timing,
            rng=self._rng,
            cron_starts=StartLimit(16),
        )
        self._controller = LocationController(tools)
        await self._controller.open()
        self._hand_over()
        self._controller.retain(())

    async def close(self) -> None:
        """Let the daemon stop, if it has not."""
        if self._controller is not None:
            controller, self._controller = self._controller, None
            await controller.close()

    async def run(self, seconds: float) -> None:
        """Let the time pass."""
        await self.clock.advance(seconds)

    def replicas(self) -> tuple[Replica, ...]:
        """What the daemon knows of."""
        return self._controller.replicas(self.last.key) if self._controller is not None else ()

    async def happen(self, verb: str, argument: str) -> None:
        """One event of a schedule."""
        places = self.programs.places()
        if verb == "push":
            self._version += 1
            self.want(version=self._version, digest=f"digest-{self._version}", containers=containers_of(argument))
        elif verb == "touch":
            self.want(config_hash=f"{self.last.config_hash}+")
        elif verb == "scale":
            self.want(replicas=int(argument))
        elif verb in ("suspend", "resume"):
            self.want(suspended=verb == "suspend")
        elif verb == "delete":
            self.wanted = None
            self._hand_over()
        elif verb == "restart":
            await self._restart(float(argument))
        elif places:
            self._trouble(verb, places[int(argument) % len(places)])

    def want(self, **changes: object) -> None:
        """Want the same but for ``changes``."""
        self.last = self.wanted = msgspec.structs.replace(self.last, **changes)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._controller is not None:
            self._controller.set_wanted(self.last.key, self.wanted)

    async def _restart(self, downtime: float) -> None:
        if self._controller is not None:
            await self.close()
            self._returning = asyncio.create_task(self._return(downtime))

    async def _return(self, downtime: float) -> None:
        await self.clock.sleep(downtime)
        await self.open()

    def _trouble(self, verb: str, container_id: ContainerId) -> None:
        if verb == "crash":
            self.programs.end(container_id, 1)
        elif verb == "dead":
            self.programs.verdict(container_id, ProbeKind.LIVENESS, False)
        elif self.programs.running[container_id].launch.image != "plain":
            self.programs.verdict(container_id, ProbeKind.READINESS, verb == "ready")

    def _probed(self, verdict: Verdict) -> None:
        if self._controller is not None:
            self._controller.on_verdict(verdict)
