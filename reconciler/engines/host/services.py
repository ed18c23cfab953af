"""The services that workload controllers use: protocols of the parts, and one value that contains them all."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.controllers.replica_store import Store
from reconciler.engines.host.cron.start_limit import StartLimit
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Container, Replica
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, OutputForm, Runtime
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.model.key import Key

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of the random suffix of replica names: no vowels, so that they form no words."""


class ContainerProvisioner(Protocol):
    """Prepares everything that containers need on this host. All methods raise EngineError."""

    def ports(self, wanted: WorkloadSpec, name: str) -> dict[int, int]:
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

    def watch(self, place: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: Container) -> None:
        """Start probing a running container."""

    def forget(self, place: ContainerId) -> None:
        """Stop probing a container."""


class LogCollection(Protocol):
    """Collects container output."""

    def watch(self, place: ContainerId, path: Path, form: OutputForm) -> None:
        """Start collecting from ``path``; does nothing if that is already done."""

    async def forget(self, place: ContainerId) -> object:
        """Collect the rest and stop; must be called before the file is removed."""


async def _in_force(_key: Key) -> None:
    """Without a data plane, there is nothing to wait for."""


class HostServices(msgspec.Struct, frozen=True):
    """Shared by the workloads of a location. ``append_event`` takes events, ``changed`` wakes observers.

    ``image_missing`` is called with a workload whose image is not on this host, although it was. ``synchronize``,
    ``open_requests`` and ``counted`` are those of the data plane. ``runs_schedules`` says whether what is due runs.
    """

    runtime: Runtime
    provisioner: ContainerProvisioner
    store: Store
    endpoints: Endpoints
    probes: Probes
    logs: LogCollection
    clock: Clock
    timing: Timing
    rng: random.Random
    append_event: Callable[[EngineEvent], None]
    changed: Callable[[], None]
    cron_starts: StartLimit
    image_missing: Callable[[Key], None] = lambda _: None
    synchronize: Callable[[Key], Awaitable[None]] = _in_force
    open_requests: Callable[[Key, str], int] = lambda _key, _replica: 0
    counted: str = "request"
    runs_schedules: Callable[[], bool] = lambda: True

    def replica_name(self, key: Key, index: int, taken: Collection[str]) -> str:
        """``web-x7k2p``, or ``db-0`` for a replica with an identity (docs/platform/workload.md#stateful-workloads)."""
        if index >= 0:
            return f"{key.name}-{index}"
        while True:
            name = f"{key.name}-{''.join(self.rng.choices(LETTERS, k=5))}"
            if name not in taken:
                return name
