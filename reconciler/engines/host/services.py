"""What keepers of workloads work with: protocols of the parts around them, and one value that holds them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reconciler.clock import Clock
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.endpoints import Endpoints
from reconciler.engines.host.replica import Container, Replica
from reconciler.engines.host.replica_store import Store
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, Runtime
from reconciler.engines.host.spec import ContainerSpec, WorkloadSpec
from reconciler.engines.protocol import EngineEvent
from reconciler.model.key import Key

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Of the ends of replicas' names: no vowels, so that no words come out."""


class ContainerProvisioner(Protocol):
    """What containers are given on this host. All raise EngineError."""

    def ports(self, wanted: WorkloadSpec, name: str) -> dict[int, int]:
        """A port of this host for each declared one, for a new replica called ``name``."""

    def reserve_ports(self, key: Key, replica: str, ports: Mapping[int, int]) -> None:
        """Let what a replica was given that is there already be nobody else's."""

    def reassign_ports(self, replica: Replica, container: str) -> dict[int, int]:
        """The ports of ``replica``, those of ``container`` exchanged where somebody else has taken them meanwhile."""

    def launch(self, replica: Replica, container: str) -> ContainerStart:
        """All that is needed to start a container, with its files made."""

    def release_ports(self, replica: Replica) -> None:
        """Give the ports of a replica back that was not made after all."""

    async def release(self, replica: Replica) -> None:
        """Remove what was made for a replica that is over."""

    def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove what a crash left of other replicas than ``replicas``."""


class Probes(Protocol):
    """Asks containers how they are."""

    def watch(self, place: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: Container) -> None:
        """Probe a running container from now on."""

    def forget(self, place: ContainerId) -> None:
        """Stop probing it."""


class LogCollection(Protocol):
    """Collects what containers write."""

    def watch(self, place: ContainerId, path: Path) -> None:
        """Collect from ``path`` from now on; fine where that is done already."""

    async def forget(self, place: ContainerId) -> object:
        """Take the rest, and stop; to be called before the file is removed."""


@dataclass(frozen=True)
class HostServices:
    """Shared by the workloads of a location. ``append_event`` takes events, ``changed`` wakes whoever observes."""

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

    def replica_name(self, key: Key, index: int, taken: Collection[str]) -> str:
        """``web-x7k2p``, or ``db-0`` for a replica with an identity (docs/platform/workload.md#stateful-workloads)."""
        if index >= 0:
            return f"{key.name}-{index}"
        while True:
            name = f"{key.name}-{''.join(self.rng.choices(LETTERS, k=5))}"
            if name not in taken:
                return name
