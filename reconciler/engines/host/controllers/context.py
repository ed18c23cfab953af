"""What workload controllers work with: protocols of what they use, and one value that contains it all."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.controllers.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Replica, ReplicaContainer
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, OutputForm, Runtime
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.model.key import Key

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of the random suffix of replica names: no vowels, so that they form no words."""


class ContainerProvisioner(Protocol):
    """Prepares everything that containers need on this host. All methods raise EngineError."""

    def ports(self, spec: WorkloadSpec, name: str) -> dict[int, int]:
        """Assign a port of this host to each declared port of a new replica called ``name``."""

    def reserve_ports(self, key: Key, replica: str, ports: Mapping[int, int]) -> None:
        """Reserve the ports of an existing replica, so that no other replica gets them."""

    def reassign_ports(self, replica: Replica, container: str) -> dict[int, int]:
        """The ports of ``replica``, with new ones for ``container`` where another program has taken them."""

    def store_template(self, replica: Replica) -> None:
        """Store what an execution is started from: the next daemon may start its containers again."""

    async def attach(self, replica: Replica, container: str) -> None:
        """Attach the volumes that a container mounts; VolumeInUse is the reason while another replica holds one."""

    async def attach_again(self, replica: Replica, is_there: Callable[[], bool]) -> None:
        """Attach volumes that running containers use, and whose locks are gone, while ``is_there`` is true."""

    def launch(self, replica: Replica, container: str) -> ContainerStart:
        """Everything that is needed to start a container; its files are written, its volumes are attached."""

    def release_ports(self, replica: Replica) -> None:
        """Release the ports of a replica that could not be created."""

    async def release(self, replica: Replica) -> None:
        """Remove everything that was made for an ended replica, and detach its volumes."""

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove what a crash left of replicas other than ``replicas``."""


class Probes(Protocol):
    """Probes containers."""

    def watch(
        self, container_id: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: ReplicaContainer
    ) -> None:
        """Start probing a running container."""

    def forget(self, container_id: ContainerId) -> None:
        """Stop probing a container."""

    async def close(self) -> None:
        """Stop probing all containers."""


class LogCollection(Protocol):
    """Collects container output."""

    def watch(self, container_id: ContainerId, path: Path, form: OutputForm) -> None:
        """Start collecting from ``path``; does nothing if that is already done."""

    async def forget(self, container_id: ContainerId) -> object:
        """Collect the rest and stop; must be called before the file is removed."""


class ReplicaTraffic(Protocol):
    """What a data plane knows of the requests of replicas; ``counted`` names what it counts."""

    counted: str

    async def synchronize(self, key: Key) -> None:
        """Return once the current endpoints of a workload are in force."""

    def open_requests(self, key: Key, replica: str) -> int:
        """The number of requests that a replica answers now."""


class NoTraffic:
    """Without a data plane, no request has to be waited for."""

    counted = "request"

    async def synchronize(self, _key: Key) -> None:
        """Return at once."""

    def open_requests(self, _key: Key, _replica: str) -> int:
        """None."""
        return 0


class ControllerContext(msgspec.Struct, frozen=True):
    """What all workload controllers of a location work with."""

    signals: LocationSignals
    runtime: Runtime
    provisioner: ContainerProvisioner
    store: ReplicaStore
    endpoints: Endpoints
    probes: Probes
    logs: LogCollection
    clock: Clock
    timing: Timing
    rng: random.Random
    cron_starts: StartLimit
    traffic: ReplicaTraffic = NoTraffic()

    def replica_name(self, key: Key, index: int, taken: Collection[str]) -> str:
        """``web-x7k2p``, or ``db-0`` for a replica with an identity (docs/platform/workload.md#stateful-workloads)."""
        if index >= 0:
            return f"{key.name}-{index}"
        while True:
            name = f"{key.name}-{''.join(self.rng.choices(LETTERS, k=5))}"
            if name not in taken:
                return name
