"""What keepers of workloads work with: protocols of the parts around them, and one value that holds them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reconciler.clock import Clock
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.endpoints import Pool
from reconciler.engines.host.replica import Container, Replica
from reconciler.engines.host.replica_store import Store
from reconciler.engines.host.runtimes.protocol import Launch, Place, Runtime
from reconciler.engines.host.spec import Wanted, WantedContainer
from reconciler.engines.protocol import News


class Outfit(Protocol):
    """What containers are given on this host. All raise EngineError."""

    def ports(self, wanted: Wanted, name: str) -> dict[int, int]:
        """A port of this host for each declared one, for a new replica called ``name``."""

    def hold(self, replica: Replica) -> None:
        """Let what a replica was given that is there already be nobody else's."""

    def moved(self, replica: Replica, container: str) -> dict[int, int]:
        """The ports of ``replica``, those of ``container`` exchanged where somebody else has taken them meanwhile."""

    def launch(self, replica: Replica, container: str) -> Launch:
        """All that is needed to start a container, with its files made."""

    async def clear(self, replica: Replica) -> None:
        """Remove what was made for a replica that is over."""


class Probing(Protocol):
    """Asks containers how they are."""

    def watch(self, place: Place, container: WantedContainer, ports: Mapping[int, int], seen: Container) -> None:
        """Probe a running container from now on."""

    def forget(self, place: Place) -> None:
        """Stop probing it."""


class Logging(Protocol):
    """Collects what containers write."""

    def follow(self, place: Place, path: Path) -> None:
        """Collect from ``path`` from now on; fine where that is done already."""

    async def forget(self, place: Place) -> object:
        """Take the rest, and stop; to be called before the file is removed."""


@dataclass(frozen=True)
class Tools:
    """Shared by all keepers of a location. ``tell`` takes news, ``changed`` says that there is something to look at."""

    runtime: Runtime
    outfit: Outfit
    store: Store
    pool: Pool
    probing: Probing
    logging: Logging
    clock: Clock
    timing: Timing
    rng: random.Random
    tell: Callable[[News], None]
    changed: Callable[[], None]
