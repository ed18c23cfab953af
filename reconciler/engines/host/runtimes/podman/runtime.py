"""The Podman runtime: starts, adopts, watches and ends the containers of one location by Podman."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL

import httpx2
import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.endpoints import CONTAINER_ENDPOINTS
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.runtimes.outputs import list_outputs
from reconciler.engines.host.runtimes.podman.api.answers import PodmanError
from reconciler.engines.host.runtimes.podman.api.client import PodmanRequest
from reconciler.engines.host.runtimes.podman.api.own_service import OwnService
from reconciler.engines.host.runtimes.podman.capabilities import find_other_mounts
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders
from reconciler.engines.host.runtimes.podman.images import PodmanImages
from reconciler.engines.host.runtimes.podman.labels import labels_of
from reconciler.engines.host.runtimes.podman.launching import Launcher
from reconciler.engines.host.runtimes.podman.limitations import list_limitations
from reconciler.engines.host.runtimes.podman.network.addresses import addresses_in_network
from reconciler.engines.host.runtimes.podman.network.firewall import FirewallKeeper, LocationFirewall
from reconciler.engines.host.runtimes.podman.network.firewall_rules import policy_of
from reconciler.engines.host.runtimes.podman.network.host_names import HostNames
from reconciler.engines.host.runtimes.podman.network.names_writer import NamesWriter
from reconciler.engines.host.runtimes.podman.programs import LACKING, oci_command, remove_old_folders
from reconciler.engines.host.runtimes.podman.service import (
    PodmanService,
    adopt_containers,
    collect_usage,
    connect_service,
    release_location,
    resize_container,
)
from reconciler.engines.host.runtimes.podman.sessions import open_session
from reconciler.engines.host.runtimes.podman.spec import ENDPOINTS_AT
from reconciler.engines.host.runtimes.podman.tracking import TrackedContainers
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import unmount_mapped
from reconciler.engines.host.runtimes.podman.users.rules import has_namespace, id_range
from reconciler.engines.host.runtimes.protocol import (
    ContainerFiles,
    ContainerId,
    ContainerStart,
    ExecResult,
    OnEnd,
    OutputFile,
    OutputForm,
    RunningContainer,
    Usage,
)
from reconciler.engines.images.protocol import ImageStore
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.terminal.session import ExecSession, TerminalSize

_TRIAL_SECONDS = 10.0


class _Opened:
    """What exists between ``open`` and ``close``."""

    def __init__(
        self, service: PodmanService, folders: ContainerFolders, names: HostNames, clock: Clock, on_end: OnEnd
    ) -> None:
        self.service = service
        self.launcher = Launcher(service, folders, clock, names)
        self.containers = TrackedContainers(service, folders, clock, on_end)
        self.firewall = FirewallKeeper(service.firewall, clock)
        self.names = NamesWriter(names, folders, self.containers, clock)

    async def stop(self) -> None:
        """Watch nothing any more."""
        for component in (self.names, self.firewall, self.containers):
            await component.close()


class PodmanOptions(msgspec.Struct, frozen=True):
    """Registries that are reached without TLS, and the first id of user namespaces, None for one by the location.

    ``own`` is the service of the daemon at the socket; None where it is that of others.
    """

    insecure: Collection[str] = ()
    first_id: int | None = None
    own: OwnService | None = None


_USUAL = PodmanOptions()


class PodmanRuntime:
    """Containers of images, for one location (see Runtime for the methods).

    ``root`` is the directory of the location on this host, ``socket`` that of the Podman service; ``transport``
    replaces the socket in tests.
    """

    name = "podman"
    resizes = True
    mounts_stores = True
    idle_store: ImageStore | None = None

    def __init__(
        self,
        root: Path,
        location: str,
        clock: Clock,
        socket: Path,
        transport: httpx2.AsyncBaseTransport | None = None,
        options: PodmanOptions = _USUAL,
    ) -> None:
        self._root = root = root.resolve()
        self._clock = clock
        self._socket = socket
        self._transport = transport
        self._folders = ContainerFolders(root)
        self._names = HostNames(root / CONTAINER_ENDPOINTS)
        self._labels = labels_of(root, location)
        self._ids = id_range(self._labels.owner, options.first_id)
        self._firewall = LocationFirewall(self._labels.owner, root / "firewall.json", clock)
        self._images = PodmanImages(socket, self._labels.owner, options.insecure, transport)
        self.image_store: ImageStore | None = self._images
        self._own = options.own
        self._open: _Opened | None = None
        self._sleeps: dict[str, bool] = {}

    async def open(self, on_end: OnEnd) -> None:
        """Connect, and adopt containers by their labels. Raises EngineError if Podman does not answer."""
        async with contextlib.AsyncExitStack() as begun:
            if self._own is not None:
                await self._own.start()
                begun.push_async_callback(self._own.stop)
            await asyncio.to_thread(self._load)
            service = await connect_service(self._socket, self._root, self._labels, self._firewall, self._transport)
            begun.push_async_callback(service.client.close)
            adopted = await adopt_containers(service, self._clock)
            await asyncio.to_thread(self._folders.restore, adopted, oci_command(service.capabilities))
            opened = _Opened(service, self._folders, self._names, self._clock, on_end)
            begun.push_async_callback(opened.stop)
            for tracked in adopted:
                opened.containers.add(tracked)
            # Nothing failed: ``close`` ends these parts from now on.
            begun.pop_all()
        self._open = opened
        opened.names.write()

    async def close(self) -> None:
        """Stop watching; containers keep running."""
        await self._images.close()
        if self._open is None:
            return
        try:
            await self._disconnect(self._open)
        finally:
            if self._own is not None:
                await self._own.stop()

    async def _disconnect(self, opened: _Opened) -> None:
        service, containers = opened.service, opened.containers
        await opened.stop()
        if not containers.all():
            await release_location(service)
        service.ports.close()
        await service.client.close()
        self._open = None

    def limitations(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """The limitations of this Podman and this host, a sentence each."""
        return tuple(list_limitations(spec, self._open.service.capabilities if self._open is not None else None))

    def prepare(self, spec: WorkloadSpec) -> None:
        """Set the firewall, of running replicas too. Files are mounted, so their parent directories do not matter."""
        self._firewall.set_policy(spec.key, policy_of(spec))
        if self._open is not None:
            self._open.firewall.wake()

    def owner(self, spec: WorkloadSpec) -> Owner:
        """The user of the manifest, otherwise that of each image; in a user namespace, if they get one."""
        capabilities = self._open.service.capabilities if self._open is not None else None
        ids = self._ids if capabilities is not None and has_namespace(spec, capabilities) else None
        return Owner(spec.user, spec.group, of_image=spec.user is None, ids=ids)

    def make_view(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:  # noqa: ARG002
        """Mounts at their paths, and the declared ports, in a separate network."""
        return ContainerView("", ENDPOINTS_AT, {declared: declared for declared in ports}, directory)

    def holds_ports(self, key: Key, replica: str) -> bool:
        """As long as the sandbox runs: the daemon, or its monitor, occupies the assigned ports."""
        if self._open is None:
            return False
        sandbox = self._open.containers.get(ContainerId(key, replica, ""))
        return sandbox is not None and sandbox.running.alive

    def addresses(self, key: Key, replica: str, ports: Mapping[int, int]) -> Mapping[int, str]:
        """In the network of the location: those of its sandboxes, and of this host for what another runtime runs."""
        if self._open is None:
            return {}
        rootless = self._open.service.capabilities.rootless
        return addresses_in_network(self._open.containers, rootless, (key, replica), ports)

    def publish(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
        """Write the names of the workload into the files of running containers."""
        self._names.set(key, ready)
        if self._open is not None:
            self._open.names.write()

    def take_events(self) -> list[tuple[Reason, str]]:
        """Whether the firewall was written again, because somebody had changed it."""
        return self._open.firewall.take_events() if self._open is not None else []

    async def start(self, launch: ContainerStart) -> None:
        """Start a container, and before the first one of a replica its sandbox. Raises EngineError."""
        # A caller that is cancelled does not stop a start half-way.
        await asyncio.shield(self._connection.containers.run(self._start(launch)))

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """Change the limits in the control groups; one of memory is never set below what is in use."""
        tracked = self._connection.containers.get(container_id)
        if tracked is None or not tracked.running.alive:
            raise EngineError(f"{container_id.container} does not run", reason=Reason.NOT_RUNNING)
        await resize_container(self._connection.service, tracked, cpu, memory)

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """Send a signal to the first process of a container; with it, SIGKILL ends all of them. Raises EngineError."""
        service, containers = self._connection.service, self._connection.containers
        tracked = containers.get(container_id)
        if tracked is None or not tracked.running.alive:
            return
        if number == SIGKILL:
            containers.note_kill(tracked)
        request = PodmanRequest("POST", f"containers/{tracked.id}/kill", {"signal": str(int(number))})
        try:
            await service.client.send(request, safe=True)
        except PodmanError as error:
            if not error.status:
                raise
            # It has ended, or lost its monitor.
            containers.suspect(tracked.id)

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program with the environment, directory, user and limits of a running container."""
        tracked = self._connection.containers.get(container_id)
        if tracked is None or not tracked.running.alive:
            raise EngineError(f"{container_id.container} does not run", reason=Reason.NOT_RUNNING)
        return await self._connection.service.execution.run(tracked.id, argv, timeout)

    def find_processes(self, container_id: ContainerId) -> frozenset[int]:
        """The first process, where this host sees it."""
        tracked = self._connection.containers.get(container_id)
        return frozenset({tracked.program.pid} - {0} if tracked is not None and tracked.running.alive else ())

    async def can_sleep(self, container_id: ContainerId) -> bool:
        """Whether the image has a program that runs as ``sleep``; each image is tried once. Raises EngineError."""
        tracked = self._connection.containers.get(container_id)
        image = tracked.image if tracked is not None else ""
        if image not in self._sleeps:
            self._sleeps[image] = (await self.exec(container_id, ("sleep", "0"), _TRIAL_SECONDS)).code not in LACKING
        return self._sleeps[image]

    async def open_session(
        self, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
    ) -> ExecSession:
        """Run a program like ``exec``, connected to the caller; finds the container by its record on disk."""
        record = await asyncio.to_thread(self._folders.record, container_id)
        if record is None:
            raise EngineError(f"{container_id.container} does not run", reason=Reason.NOT_RUNNING)
        return await open_session(record, self._socket, argv, terminal)

    async def stats(self) -> dict[ContainerId, Usage]:
        """The usage of each running container, as far as it is known."""
        running = [container for container in self._connection.containers.all() if container.running.alive]
        return await collect_usage(self._connection.service, running)

    async def list(self) -> list[RunningContainer]:
        """All containers that were started and not removed."""
        return [container.running for container in self._connection.containers.all()]

    def output(self, container_id: ContainerId) -> Path:
        """The output file of the container."""
        return self._folders.output(container_id)

    def output_form(self, container_id: ContainerId) -> OutputForm:  # noqa: ARG002
        """That of conmon."""
        return OutputForm.CRI

    def outputs(self) -> Sequence[OutputFile]:
        """The output files below the directory of the location."""
        return list_outputs(self._folders.top, OutputForm.CRI)

    def append_output(self, container_id: ContainerId, text: str) -> None:
        """Append ``text`` to the output file, in the form in which conmon writes it."""
        self._folders.append(container_id, text, self._clock.now())

    def written_paths(self, container_id: ContainerId) -> tuple[Path, ...]:
        """The output file, and the writable layer of the container."""
        tracked = self._open.containers.get(container_id) if self._open is not None else None
        return (self.output(container_id), *((Path(tracked.upper),) if tracked is not None and tracked.upper else ()))

    async def remove(self, key: Key, replica: str) -> None:
        """Kill and delete the containers of a replica, its sandbox and its directory. Raises EngineError."""
        service, containers = self._connection.service, self._connection.containers
        async with containers.lock(key, replica):
            await service.sweeper.delete_replica(key, replica)
            for container_id in containers.of_replica(key, replica):
                containers.forget(container_id)
            try:
                await asyncio.to_thread(self._folders.remove, key, replica)
            except OSError as error:
                message = f"cannot delete the directory of {replica}: {error}"
                raise EngineError(message, reason=Reason.REMOVAL_FAILED) from error

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove other replicas, and parts that Podman forgot; the next start of the daemon retries failures."""
        listed = await self._connection.service.sweeper.list_containers()
        labelled = [self._labels.read(entry.labels) for entry in listed]
        replica_ids = {(entry.place.key, entry.place.replica) for entry in labelled if entry is not None}
        # A removal that failed half-way leaves a directory without containers.
        replica_ids.update(await asyncio.to_thread(self._folders.replicas))
        for key, replica in sorted(replica_ids):
            if (key, replica) not in replicas:
                with contextlib.suppress(EngineError):
                    await self.remove(key, replica)
        with contextlib.suppress(EngineError):
            await self._connection.service.sweeper.delete_leftovers()

    def _load(self) -> None:
        remove_old_folders()
        # A daemon that was killed during a start leaves its mounts.
        unmount_mapped(self._folders.mapped_mounts, find_other_mounts(self._socket))
        self._firewall.load()
        self._names.load()

    @property
    def _connection(self) -> _Opened:
        if self._open is None:
            raise EngineError("Podman is not connected", reason=Reason.RUNTIME_UNAVAILABLE)
        return self._open

    async def _start(self, launch: ContainerStart) -> None:
        opened = self._connection
        await opened.launcher.start(launch, opened.containers)
        opened.names.write()
