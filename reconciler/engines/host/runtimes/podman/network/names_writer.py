"""Writes the names of workloads into the files of running containers, as replicas become ready and unready."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders
from reconciler.engines.host.runtimes.podman.network.host_names import HostNames
from reconciler.engines.host.runtimes.podman.tracking import TrackedContainers
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.tasks import cancel_and_wait

_PAUSE_SECONDS = 0.1
"""Seconds between two passes: each may write the file of every container."""


class NamesWriter:
    """Brings the files of ``containers``, which are in ``folders``, to what ``names`` has."""

    def __init__(
        self, names: HostNames, folders: ContainerFolders, containers: TrackedContainers, clock: Clock
    ) -> None:
        self._names = names
        self._folders = folders
        self._containers = containers
        self._clock = clock
        self._due = False
        self._task: asyncio.Task[None] | None = None

    def write(self) -> None:
        """Write the files that are outdated, soon; several calls are one pass."""
        self._due = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Write no more; the next daemon does."""
        if self._task is not None:
            await cancel_and_wait([self._task], "the names of workloads")

    async def _run(self) -> None:
        while self._due:
            self._due = False
            running = {container.running.place for container in self._containers.all() if container.running.alive}
            outdated = self._names.find_outdated(running)
            if outdated:
                with contain_bugs("the names of workloads"):
                    await asyncio.to_thread(self._update, outdated)
            await self._clock.sleep(_PAUSE_SECONDS)

    def _update(self, places: Collection[ContainerId]) -> None:
        for container_id in places:
            # The next change tries again, as does the next daemon.
            with suppress(OSError):
                self._names.update(self._folders.hosts(container_id), container_id)
