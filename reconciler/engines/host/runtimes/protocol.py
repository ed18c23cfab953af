"""What runs containers: a small protocol with one form for processes, one for the tests, and more to come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.model.key import Key


class ContainerId(msgspec.Struct, frozen=True, order=True):
    """One container of one replica of a workload: what runtimes, logs and usage are told apart by."""

    key: Key
    replica: str
    container: str


class Mount(msgspec.Struct, frozen=True):
    """A directory or file on this host that a container sees at ``path``."""

    source: Path
    path: str
    read_only: bool = True


class ContainerStart(msgspec.Struct, frozen=True):
    """All that is needed to start a container once. ``ports`` maps a declared port to the one that it is given.

    ``env`` and the files behind ``mounts`` may hold secrets: neither is ever logged. ``cpu`` in millicores, ``memory``
    in bytes, ``processes`` with their threads. ``version``, ``config_hash`` and ``index`` are the replica's: they and
    ``ports`` come back from ``list``.
    """

    place: ContainerId
    version: int
    config_hash: str
    index: int
    command: str
    args: tuple[str, ...]
    env: dict[str, str]
    image: str = ""
    directory: str = ""
    user: int | None = None
    group: int = 0
    cpu: int = 50
    memory: int = 128 * 2**20
    processes: int = 2048
    ports: dict[int, int] = {}
    mounts: tuple[Mount, ...] = ()


class RunningContainer(msgspec.Struct, frozen=True):
    """A container that the runtime knows at its location: running, or ended with ``code`` (None where nobody saw it).

    ``started`` in seconds of the monotonic clock. ``ports`` maps a declared port to the one that it was given.
    """

    place: ContainerId
    version: int
    config_hash: str
    index: int
    alive: bool
    started: float
    code: int | None = None
    reason: str = ""
    ports: dict[int, int] = {}


class ExecResult(msgspec.Struct, frozen=True):
    """How a program inside a container ended; ``output`` is the end of what it wrote, at most 4 KiB."""

    code: int
    output: str
    timed_out: bool = False


class Usage(msgspec.Struct, frozen=True):
    """What a container has used: CPU seconds since its start, and bytes of memory now."""

    cpu_seconds: float
    memory: int


OnEnd = Callable[[ContainerId], None]
"""Called in the event loop when a container that was started or adopted has ended; ``list`` says how."""


class Runtime(Protocol):
    """Runs the containers of one location. Every method is safe to repeat and raises EngineError to fail."""

    name: str

    async def open(self, on_end: OnEnd) -> None:
        """Begin to work: learn what there is, and watch it. To be called once, before all else."""

    async def close(self) -> None:
        """Stop watching; what runs goes on running."""

    def limitations(self, wanted: WorkloadSpec) -> tuple[str, ...]:
        """What this runtime cannot enforce of ``wanted``, a sentence each, in a fixed order."""

    async def start(self, launch: ContainerStart) -> None:
        """Start a container; fine where just this one runs already. Raises EngineError that says what is wrong."""

    async def signal(self, place: ContainerId, number: int) -> None:
        """Send SIGKILL to all that runs in the container, another signal to its main process; fine where none runs."""

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program inside a running container, for at most ``timeout`` seconds."""

    async def stats(self) -> dict[ContainerId, Usage]:
        """What each running container uses."""

    async def list(self) -> list[RunningContainer]:
        """Every container at this location that is ours, by its labels, whoever started it."""

    def output(self, place: ContainerId) -> Path:
        """The file that holds what the container wrote; it grows, and may be missing as yet."""

    async def remove(self, key: Key, replica: str) -> None:
        """Kill what is left of a replica, whatever became of it, and forget it."""

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove what a crash left of other replicas than ``replicas``; what cannot be removed stays."""


class RuntimeSnapshot(msgspec.Struct, frozen=True):
    """What a runtime has at a location at one moment, read without the daemon.

    ``usage`` is by container and run, since a container that was started again begins anew. ``ended`` were started and
    run no more. ``boots`` are the boots of this machine of which something may run still.
    """

    usage: dict[tuple[ContainerId, str], Usage]
    ended: frozenset[ContainerId]
    boots: frozenset[str]


class HostProblem(NamedTuple):
    """What a runtime lacks on this host, and what to do about it; where that is ``fatal``, nothing can be started.

    ``of_user``: the message goes on after the name of the user.
    """

    message: str
    advice: str
    fatal: bool = False
    of_user: bool = False


class RuntimePlugin(Protocol):
    """What the package of a runtime offers, as ``PLUGIN`` of its module ``plugin``.

    The name of the package is that of the runtime in the settings.
    """

    uses_images: bool

    def make(self, root: Path, location: str, clock: Clock) -> Runtime:
        """The runtime of one location, whose directory is ``root``."""

    def foreseen_limitations(self, wanted: WorkloadSpec) -> Iterator[str]:
        """What of ``wanted`` no host enforces, a sentence each: for plans, which know no host."""

    def snapshot(self, root: Path, location: str) -> RuntimeSnapshot:
        """What there is at a location, beside a daemon or without one. Blocks for a while."""

    def check_host(self, state: Path, proc: Path, own_user: bool) -> Iterator[HostProblem]:
        """What is lacking here; some things only the daemon's user can tell (``own_user``: it asks itself)."""


@cache
def runtime_plugin(name: str) -> RuntimePlugin:
    """The plugin of the runtime that the settings call ``name``; their schema lists those that there are."""
    found: RuntimePlugin = import_module(f"{__package__}.{name}.plugin").PLUGIN
    return found
