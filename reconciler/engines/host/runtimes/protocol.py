"""The protocol of container runtimes, which the process runtime and the fake runtime of the tests implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.disk.ownership import IdRange, Owner
from reconciler.engines.images.protocol import ImageStore
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import UNRESTRICTED, Restriction, WorkloadSpec
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.settings import Settings
from reconciler.terminal.session import ExecSession, TerminalSize


class ContainerId(msgspec.Struct, frozen=True, order=True):
    """One container of one replica of a workload; identifies it in runtimes, logs and usage."""

    key: Key
    replica: str
    container: str


class Mount(msgspec.Struct, frozen=True):
    """A directory or file of this host that a container sees at ``path``."""

    source: Path
    path: str
    read_only: bool = True


class StoreMount(msgspec.Struct, frozen=True):
    """The object store ``uri``, which a container sees read-only at ``path``.

    ``place`` is the bucket or container. ``options`` are those of a remote of rclone, ``principal`` the content of its
    file with an account, or "". ``repr`` hides both, which have secrets.
    """

    uri: str
    path: str
    place: str
    options: dict[str, str]
    principal: str = ""

    def __repr__(self) -> str:
        return f"StoreMount(uri={self.uri!r}, path={self.path!r})"


class ContainerFiles(msgspec.Struct, frozen=True):
    """The files of a container on this host, made for its next start; those of its mounts belong to ``owner``.

    ``private`` is a directory for the runtime's own use, which nothing else creates. It is removed with the replica,
    and its content counts as ephemeral storage. ``endpoints`` contains the endpoints files of the container's GVC.
    """

    place: ContainerId
    mounts: tuple[Mount, ...]
    owner: Owner
    private: Path
    endpoints: Path


class ContainerStart(msgspec.Struct, frozen=True):
    """The inputs of one start of a container. ``ports`` maps a declared port to the assigned one.

    ``replica_ports`` are those of all containers of the replica, and ``siblings`` the names of all its containers: they
    share a network if the replica has its own. ``command`` is "" for that of the image.

    ``env``, ``stores`` and the files behind ``mounts`` may contain secrets: none is ever logged. ``cpu`` is in
    millicores, ``memory`` in bytes, ``processes`` includes threads. ``version``, ``config_hash`` and ``index`` are the
    replica's: ``list`` returns them and ``ports``. ``ids`` are those that its user namespace has if it gets a new one,
    None for that of this host.
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
    replica_ports: dict[int, int] = {}
    siblings: tuple[str, ...] = ()
    restriction: Restriction = UNRESTRICTED
    stores: tuple[StoreMount, ...] = ()
    ids: IdRange | None = None


class RunningContainer(msgspec.Struct, frozen=True):
    """A container that the runtime knows: running, or ended with ``code`` (None if nothing recorded it).

    ``started`` is in seconds of the monotonic clock. ``ports`` are as in ContainerStart; ``image`` is "" if unknown.
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
    image: str = ""


class ExecResult(msgspec.Struct, frozen=True):
    """How a program inside a container ended; ``output`` is the end of its output, at most 4 KiB."""

    code: int
    output: str
    timed_out: bool = False


class Usage(msgspec.Struct, frozen=True):
    """The usage of a container: CPU seconds since its start, and bytes of memory now."""

    cpu_seconds: float
    memory: int


class OutputForm(Enum):
    """The form of an output file: what the programs wrote, or lines with time and stream as of Kubernetes' CRI."""

    PLAIN = "plain"
    CRI = "cri"


class OutputFile(NamedTuple):
    """The output file of a container, whether or not its replica is known."""

    place: ContainerId
    path: Path
    form: OutputForm


OnEnd = Callable[[ContainerId], None]
"""Called in the event loop when a started or adopted container has ended; ``list`` returns the details."""


class Runtime(Protocol):
    """Runs the containers of one location. Every method may be repeated, and raises EngineError on failure."""

    name: str
    resizes: bool
    """Whether the limits of a running container can change."""
    mounts_stores: bool
    """Whether containers see object stores, if this host has what that needs."""
    image_store: ImageStore | None
    """Holds the images of containers; None in a runtime without images."""
    idle_store: ImageStore | None
    """Without ``image_store``: that of a former runtime, whose images are only removed now."""

    async def open(self, on_end: OnEnd) -> None:
        """Discover and watch running containers, before all other methods; again after a failure or ``close``."""

    async def close(self) -> None:
        """Stop watching; containers keep running. Does nothing if it is not open."""

    def limitations(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """A sentence for each part of ``spec`` that this runtime cannot enforce, in a fixed order."""

    def prepare(self, spec: WorkloadSpec) -> None:
        """Prepare this host for replicas of ``spec``, before the first of them starts; never waits, never fails."""

    def owner(self, spec: WorkloadSpec) -> Owner:
        """The user and group of this host that own the files of its containers. Raises EngineError."""

    def make_view(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
        """Prepare the files and variables of a container for its next start. Blocks on the disk. Raises EngineError.

        ``ports`` maps each declared port of the replica to the assigned port of this host. ``directory`` is the working
        directory in the manifest, "" without one.
        """

    def holds_ports(self, key: Key, replica: str) -> bool:
        """Whether this runtime itself listens on the assigned ports of the replica now, also between two starts."""

    def addresses(self, key: Key, replica: str, ports: Mapping[int, int]) -> Mapping[int, str] | None:
        """Where containers reach declared ports of a replica, as ``address:port``; other ports are left out.

        ``ports`` maps them to the assigned ones. None if containers share the network of this host.
        """

    def publish(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
        """Let containers find the ready replicas of a workload, each with its ``addresses``, by name."""

    def take_events(self) -> list[tuple[Reason, str]]:
        """What happened to this host since the last call, for events of the location."""

    async def start(self, launch: ContainerStart) -> None:
        """Start a container, unless the same start already runs. Raises EngineError with the cause."""

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """Change the limits of a running container, as in ContainerStart. Raises EngineError, also if none runs."""

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """Send SIGKILL to all processes of the container, or another signal to its main process, if any runs."""

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program inside a running container, for at most ``timeout`` seconds."""

    def find_processes(self, container_id: ContainerId) -> frozenset[int]:
        """Processes of a running container, as this host numbers them; none where they are not known. Blocks."""

    async def can_sleep(self, container_id: ContainerId) -> bool:
        """Whether a running container has the program ``sleep``, of the default preStop hook. Raises EngineError."""

    async def open_session(
        self, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
    ) -> ExecSession:
        """Run a program like ``exec``, connected to the caller, by pipes without ``terminal``; also before ``open``."""

    async def stats(self) -> dict[ContainerId, Usage]:
        """The usage of each running container."""

    async def list(self) -> list[RunningContainer]:
        """All our containers at this location, identified by their labels."""

    def output(self, container_id: ContainerId) -> Path:
        """The output file of the container; it grows, and may not exist yet."""

    def output_form(self, container_id: ContainerId) -> OutputForm:
        """The form of the output file of the container."""

    def outputs(self) -> Sequence[OutputFile]:
        """The output files on disk, also those of replicas that nobody knows. Blocks while it reads directories."""

    def append_output(self, container_id: ContainerId, text: str) -> None:
        """Add whole lines to the output of the container; does nothing if that fails."""

    def written_paths(self, container_id: ContainerId) -> tuple[Path, ...]:
        """What the container fills besides its mounts and its private directory; may not exist."""

    async def remove(self, key: Key, replica: str) -> None:
        """Kill the remains of a replica in any state, and forget it."""

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove remains of a crash of other replicas than ``replicas``; replicas that cannot be removed stay."""


class RuntimeSnapshot(msgspec.Struct, frozen=True):
    """The state of a runtime at a location, read without the daemon.

    ``usage`` is by container and run, since a restarted container starts at zero. ``running`` containers run now;
    ``ended`` ones were started and do not. Of all others nothing is known, since what is recorded of their starts was
    lost. ``boots`` are the boot ids of this machine whose containers may still run.
    """

    usage: dict[tuple[ContainerId, str], Usage]
    running: frozenset[ContainerId]
    ended: frozenset[ContainerId]
    boots: frozenset[str]


class HostProblem(NamedTuple):
    """A missing requirement on this host, and the remedy: ``fatal``, or of the user whose name begins the message.

    ``concerns``: it only concerns workloads with ``stores`` (object stores that they mount) or with ``variables``
    (secrets in variables); "" for all.
    """

    message: str
    advice: str
    fatal: bool = False
    of_user: bool = False
    concerns: Literal["", "stores", "variables"] = ""


class RuntimePlugin(Protocol):
    """What the package of a runtime provides, as ``PLUGIN`` in its module ``plugin``; settings name the package."""

    uses_images: bool

    def make(self, root: Path, location: str, clock: Clock, settings: Settings) -> Runtime:
        """The runtime of one location, whose directory is ``root``."""

    def foreseen_limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """A sentence for each part of ``spec`` that no host enforces: for plans, which know no host."""

    def list_obstacles(self, settings: Settings) -> Iterator[HostProblem]:
        """What keeps every container from starting on this host, as it is now: for plans, too."""

    def is_available(self, settings: Settings) -> bool:
        """Whether containers can run on this host now; decides the runtime of a location with ``auto``."""

    def is_in_use(self, root: Path) -> bool:
        """Whether containers of this runtime may exist at the location whose directory is ``root``."""

    def snapshot(self, root: Path, location: str) -> RuntimeSnapshot:
        """The state of a location, readable with or without a daemon. Blocks while it reads files."""

    def processes(self, root: Path, key: Key) -> frozenset[int]:
        """The processes of the workload ``key`` in the network of this host, by records that no workload can write."""

    def check_host(self, settings: Settings, proc: Path, own_user: bool) -> Iterator[HostProblem]:
        """The problems of this host; some can only be found as the daemon's user (``own_user``)."""
