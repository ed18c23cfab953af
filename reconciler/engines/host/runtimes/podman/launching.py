"""Starts the containers of replicas: first the sandbox, then each container in its namespaces."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.endpoints import CONTAINER_ENDPOINTS
from reconciler.engines.host.disk.atomic import write_error
from reconciler.engines.host.runtimes.podman.api.answers import PodmanError
from reconciler.engines.host.runtimes.podman.capabilities import find_other_mounts
from reconciler.engines.host.runtimes.podman.ends import recorded_outcome
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders, give_mounts
from reconciler.engines.host.runtimes.podman.labels import Labelled
from reconciler.engines.host.runtimes.podman.network.host_names import HostNames
from reconciler.engines.host.runtimes.podman.programs import limit_inotify, oci_command
from reconciler.engines.host.runtimes.podman.service import PodmanService, limit_cpu
from reconciler.engines.host.runtimes.podman.spec import check_launch, container_body, sandbox_place
from reconciler.engines.host.runtimes.podman.stores import mount_stores
from reconciler.engines.host.runtimes.podman.tracked import Tracked, is_of_container, track_container
from reconciler.engines.host.runtimes.podman.tracking import TrackedContainers
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import map_mounts
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.errors import EngineError
from reconciler.model.platform import RESTRICTED_USER
from reconciler.reasons import Reason

_NOTICED_WITHIN, _PAUSE = 2.0, 0.05


class Launcher:
    """Starts containers of one location, whose files are in ``folders``; they resolve ``names``."""

    def __init__(self, service: PodmanService, folders: ContainerFolders, clock: Clock, names: HostNames) -> None:
        self._service = service
        self._folders = folders
        self._clock = clock
        self._names = names

    async def start(self, launch: ContainerStart, containers: TrackedContainers) -> None:
        """Start a container in its sandbox, and add both to ``containers``, at most once. Raises EngineError."""
        container_id = launch.place
        async with containers.lock(container_id.key, container_id.replica):
            tracked = containers.get(container_id)
            if tracked is not None and tracked.running.alive:
                now = tracked.running
                if (now.version, now.config_hash, now.index) == (launch.version, launch.config_hash, launch.index):
                    return
                message = f"{container_id.container} runs already in version {now.version}"
                raise EngineError(message, reason=Reason.ALREADY_RUNNING)
            check_launch(launch)
            sandbox = await self._provide_sandbox(launch, containers)
            # Containers of a replica are in the user namespace of its sandbox, which can be older than the settings.
            launch = msgspec.structs.replace(launch, ids=sandbox.labelled.ids)
            if tracked is not None:
                await self._service.sweeper.delete_wholly([tracked.id])
            containers.add(await self._start_container(launch, sandbox))

    async def _provide_sandbox(self, launch: ContainerStart, containers: TrackedContainers) -> Tracked:
        """The sandbox of the replica, started if none is ``containers`` to run. Raises EngineError."""
        container_id = sandbox_place(launch)
        sandbox = containers.get(container_id)
        if sandbox is not None and sandbox.running.alive:
            return sandbox
        # Nothing comes back into the network of a sandbox that has ended.
        if containers.of_replica(container_id.key, container_id.replica):
            await self._service.sweeper.delete_replica(container_id.key, container_id.replica)
        tracked = await self._start_sandbox(launch)
        containers.add(tracked)
        return tracked

    async def _start_sandbox(self, launch: ContainerStart) -> Tracked:
        """Start the sandbox of the replica that ``launch`` belongs to. Raises EngineError."""
        at = self._clock.monotonic()
        inspected = await self._service.sandboxes.make(launch)
        if launch.user != RESTRICTED_USER:
            # Whatever the images name, and even if a program changes its user later. Where the kernel refuses, the
            # start of a container that is known to run as this user reports it.
            with suppress(EngineError):
                await self._service.sandboxes.restrict(inspected.state.pid)
        tracked = track_container(
            inspected, _make_labelled_container(launch, sandbox_place(launch), launch.replica_ports), at
        )
        if launch.ids is not None and tracked.program.pid:
            await asyncio.to_thread(limit_inotify, tracked.program.pid)
        try:
            await self._service.sandboxes.publish(launch, tracked.network.address)
        except EngineError:
            # A sandbox without its ports or its firewall does not stay.
            self._service.ports.release(sandbox_place(launch))
            self._service.firewall.release(sandbox_place(launch))
            await self._service.sweeper.delete_wholly([inspected.id])
            raise
        return tracked

    async def _start_container(self, launch: ContainerStart, sandbox: Tracked) -> Tracked:
        """Start the container in the namespaces of ``sandbox``. Raises EngineError."""
        at, service = self._clock.monotonic(), self._service
        paths = self._folders.paths(launch.place, self._folders.root / CONTAINER_ENDPOINTS)
        try:
            await asyncio.to_thread(self._folders.prepare, launch, paths, self._names)
            seen = await asyncio.to_thread(self._with_stores, launch)
        except OSError as error:
            container_id = launch.place
            raise write_error(
                f"the files of {container_id.replica}, container {container_id.container}, cannot be made", error
            ) from None

        async def prepare(container: str) -> None:
            await self._prepare(launch, sandbox, container)

        async with self._with_users(seen, sandbox) as owned:
            inspected = await service.starter.run(
                lambda around, nonce: container_body(owned, around, sandbox.id, paths, nonce), prepare
            )
        tracked = track_container(inspected, _make_labelled_container(launch, launch.place, launch.ports), at)
        await self._limit(tracked)
        if not tracked.running.alive:
            tracked = tracked.as_ended(await recorded_outcome(inspected))
        await asyncio.to_thread(self._folders.write, tracked, oci_command(service.capabilities))
        return tracked

    async def _prepare(self, launch: ContainerStart, sandbox: Tracked, container: str) -> None:
        """Give the files to the user of the container, and take the network from the restricted one."""
        user = launch.user
        if user is None:
            user = await self._service.users.find(launch.image, container)
        if launch.ids is not None and user >= launch.ids.count:
            message = (
                f"the container runs as user {user}, and its user namespace has those below {launch.ids.count}: name "
                f"{launch.place.key.gvc}/{launch.place.key.name} in podman.userNamespaces.hostUsers"
            )
            raise EngineError(message, reason=Reason.USER_NOT_FOUND, retry=False)
        if user or launch.ids is not None:
            await asyncio.to_thread(_give_volumes, launch, user)
        if user == RESTRICTED_USER and sandbox.program.pid:
            await self._service.sandboxes.restrict(sandbox.program.pid)
        if launch.ids is not None:
            await self._give_outputs(container, launch.ids.of(user))

    async def _give_outputs(self, container: str, user: int) -> None:
        """Let a program open /dev/stdout, which is a pipe of root: before it starts, give both pipes to its user."""
        await self._service.client.post(f"containers/{container}/init")
        inspected = await self._service.starter.inspect(container)
        with suppress(OSError):  # if it has ended, its start reports that
            await asyncio.to_thread(_give_pipes, container, inspected.state.pid, user)

    @asynccontextmanager
    async def _with_users(self, launch: ContainerStart, sandbox: Tracked) -> AsyncIterator[ContainerStart]:
        """``launch`` with mounts for the user namespace of ``sandbox``, if it has one. Raises EngineError."""
        # Files of mounts that are read-only get their owner by a chown instead.
        if launch.ids is None or all(mount.read_only for mount in launch.mounts):
            yield launch
            return
        async with AsyncExitStack() as stack:
            mounting = ExitStack()
            stack.push_async_callback(asyncio.to_thread, mounting.close)
            podman = await asyncio.to_thread(find_other_mounts, self._service.client.socket)
            mounts = map_mounts(launch.mounts, self._folders.mapped_mounts, sandbox.program.pid, podman)
            try:
                there = await asyncio.to_thread(mounting.enter_context, mounts)
            except OSError as error:
                key = launch.place.key
                message = (
                    f"the volumes of {launch.place.replica} cannot be mounted for its users: {error}; without a user "
                    f"namespace they need no such mount: podman.userNamespaces.hostUsers with {key.gvc}/{key.name}"
                )
                raise EngineError(message, reason=Reason.VOLUME_UNAVAILABLE) from None
            yield msgspec.structs.replace(launch, mounts=there)

    def _with_stores(self, launch: ContainerStart) -> ContainerStart:
        """``launch`` with its object stores mounted, if this host can. Raises EngineError. Blocks."""
        if not launch.stores or self._service.capabilities.lacks_for_stores:
            return launch
        mounts = mount_stores(launch.stores, self._folders.stores(launch.place))
        return msgspec.structs.replace(launch, mounts=(*launch.mounts, *mounts))

    async def _limit(self, tracked: Tracked) -> None:
        """Set the quota of CPU. A container without it does not stay. Raises EngineError."""
        service = self._service
        try:
            await limit_cpu(service, tracked)
        except PodmanError as error:
            # One that has ended cannot be limited, and needs no limit.
            if await self._ends(tracked.id):
                return
            await service.sweeper.delete_wholly([tracked.id])
            raise EngineError(f"the limit of CPU cannot be set: {error}", reason=Reason.LIMITS_FAILED) from error

    async def _ends(self, container: str) -> bool:
        """Whether a container has ended, also if Podman has not noticed it yet. Raises PodmanError."""
        deadline = time.monotonic() + _NOTICED_WITHIN
        while (await self._service.starter.inspect(container)).running:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_PAUSE)
        return True


def _make_labelled_container(launch: ContainerStart, container_id: ContainerId, ports: dict[int, int]) -> Labelled:
    cpu, image = (launch.cpu, launch.image) if container_id.container else (0, "")
    return Labelled(container_id, launch.version, launch.config_hash, launch.index, ports, cpu, image, launch.ids)


def _give_volumes(launch: ContainerStart, user: int) -> None:
    try:
        # What it writes to is given to a user of the manifest already, and stays with root of an image.
        mounts = (
            launch.mounts if launch.user is None and user else (mount for mount in launch.mounts if mount.read_only)
        )
        give_mounts(mounts, user, launch.ids)
    except OSError as error:
        raise write_error(f"the volumes of {launch.place.replica} cannot be given to user {user}", error) from None


def _give_pipes(container: str, pid: int, user: int) -> None:
    """Give the pipes of the output of the process ``pid`` to ``user``, if it is of ``container``. Raises OSError."""
    for number in (1, 2) if is_of_container(container, pid) else ():
        path = Path(f"/proc/{pid}/fd/{number}")
        if stat.S_ISFIFO(path.stat().st_mode):
            os.chown(path, user, -1)
