"""The containers of a location as the daemon knows them, from their start or adoption to their removal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from signal import SIGKILL
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.runtimes.podman.api.answers import ContainerEvent
from reconciler.engines.host.runtimes.podman.api.client import PodmanRequest
from reconciler.engines.host.runtimes.podman.ends import EndWatcher
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders
from reconciler.engines.host.runtimes.podman.service import PodmanService
from reconciler.engines.host.runtimes.podman.stores import has_dead_mounts
from reconciler.engines.host.runtimes.podman.tracked import KILLED, ContainerOutcome, Tracked
from reconciler.engines.host.runtimes.protocol import ContainerId, OnEnd
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait, wait_at_most

REFRESH_SECONDS = 30.0
"""Seconds between two full lists, which find what no process and no event has reported."""
_AGAIN_SECONDS = 1.0
_ENDS = ["died", "remove"]


class TrackedContainers:
    """Knows and watches containers; sandboxes are among them, as containers called "".

    ``on_end`` is called once for each container that has ended, and not for sandboxes: with those the whole replica
    ends.
    """

    def __init__(self, service: PodmanService, folders: ContainerFolders, clock: Clock, on_end: OnEnd) -> None:
        self._locks: WeakValueDictionary[tuple[Key, str], asyncio.Lock] = WeakValueDictionary()
        self._service = service
        self._folders = folders
        self._clock = clock
        self._on_end: OnEnd | None = on_end
        self._watcher = EndWatcher(service.starter, service.sweeper, service.capabilities.direct, self.suspect)
        self._by_place: dict[ContainerId, Tracked] = {}
        self._by_id: dict[str, ContainerId] = {}
        self._killed: set[str] = set()
        self._without_stores: set[str] = set()
        self._checking: set[str] = set()
        self._again: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self._loops = [asyncio.create_task(coroutine) for coroutine in (self._refresh(), self._follow_events())]

    async def close(self) -> None:
        """Stop watching. Work that has begun goes on for a moment."""
        self._on_end = None
        await cancel_and_wait([*self._loops, *self._checks], "the lists and events of Podman")
        self._watcher.close()
        await wait_at_most(self._tasks, "the Podman runtime")

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do ``work``, whoever stops waiting for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def lock(self, key: Key, replica: str) -> asyncio.Lock:
        """Lets one thing at a time happen to a replica; the same lock as long as anything holds it or waits for it."""
        return self._locks.setdefault((key, replica), asyncio.Lock())

    def get(self, container_id: ContainerId) -> Tracked | None:
        """The container at ``container_id``, running or ended; None if there is none."""
        return self._by_place.get(container_id)

    def all(self) -> list[Tracked]:
        """All containers in order of their places, without sandboxes."""
        return [tracked for container_id, tracked in sorted(self._by_place.items()) if container_id.container]

    def sandboxes(self) -> list[Tracked]:
        """The sandboxes of all replicas."""
        return [tracked for container_id, tracked in self._by_place.items() if not container_id.container]

    def of_replica(self, key: Key, replica: str) -> list[ContainerId]:
        """The containers of a replica, with its sandbox."""
        return [
            container_id
            for container_id in self._by_place
            if (container_id.key, container_id.replica) == (key, replica)
        ]

    def add(self, tracked: Tracked) -> None:
        """Know a container from now on, and watch it if it runs; report it if it has ended already."""
        container_id = tracked.running.place
        self.forget(container_id)
        self._by_place[container_id] = tracked
        self._by_id[tracked.id] = container_id
        if tracked.running.alive:
            self._watcher.watch(tracked)
        else:
            asyncio.get_running_loop().call_soon(self._report, container_id)

    def forget(self, container_id: ContainerId) -> None:
        """Know a removed container no longer."""
        tracked = self._by_place.pop(container_id, None)
        if tracked is not None:
            self._watcher.forget(tracked)
            self._by_id.pop(tracked.id, None)
            self._killed.discard(tracked.id)
            self._without_stores.discard(tracked.id)
            if not container_id.container:
                self._service.ports.release(container_id)
                self._service.firewall.release(container_id)
                self.run(self._write_ports())

    def note_kill(self, tracked: Tracked) -> None:
        """Remember that we kill a container, so that its end is not put down to its memory."""
        self._killed.add(tracked.id)

    def suspect(self, container: str) -> None:
        """Check whether the container of that ID has ended; for IDs of others, do nothing."""
        if container in self._checking:
            # What raised this suspicion may have come after the question of that check.
            self._again.add(container)
        elif (tracked := self._running(container)) is not None:
            self._checking.add(container)
            task = asyncio.create_task(self._check(tracked))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    def _running(self, container: str) -> Tracked | None:
        container_id = self._by_id.get(container)
        tracked = self._by_place.get(container_id) if container_id is not None else None
        return tracked if tracked is not None and tracked.running.alive else None

    async def _check(self, tracked: Tracked) -> None:
        try:
            outcome = await self._watcher.outcome(tracked)
        finally:
            self._checking.discard(tracked.id)
            again = tracked.id in self._again
            self._again.discard(tracked.id)
        if outcome is None and again:
            self.suspect(tracked.id)
        # Another start may have taken its place meanwhile.
        if outcome is None or self._by_place.get(tracked.running.place) is not tracked:
            return
        if tracked.running.place.container:
            self._end(tracked, outcome)
        else:
            await self._lose(tracked)

    def _end(self, tracked: Tracked, outcome: ContainerOutcome) -> None:
        self._watcher.forget(tracked)
        container_id, killed = tracked.running.place, tracked.id in self._killed
        self._killed.discard(tracked.id)
        ended = tracked.as_ended(outcome, killed=killed)
        if tracked.id in self._without_stores:
            self._without_stores.discard(tracked.id)
            ended = replace(ended, running=replace(ended.running, reason=Reason.STORE_MOUNT_FAILED))
        self._by_place[container_id] = ended
        self._report(container_id)

    async def _lose(self, sandbox: Tracked) -> None:
        """End the replica of a sandbox that has ended: nothing comes back into its network."""
        sandbox_id = sandbox.running.place
        async with self.lock(sandbox_id.key, sandbox_id.replica):
            if self._by_place.get(sandbox_id) is not sandbox:
                return
            self.forget(sandbox_id)
            members = [
                self._by_place[container_id] for container_id in self.of_replica(sandbox_id.key, sandbox_id.replica)
            ]
            running = [member for member in members if member.running.alive]
            for tracked in running:
                self._watcher.forget(tracked)
                self._by_place[tracked.running.place] = tracked.as_ended(ContainerOutcome(KILLED), killed=True)
            # A start that follows deletes what this cannot.
            with contextlib.suppress(EngineError):
                await self._service.sweeper.delete_replica(sandbox_id.key, sandbox_id.replica)
        for tracked in running:
            self._report(tracked.running.place)

    def _report(self, container_id: ContainerId) -> None:
        if self._on_end is not None and container_id.container:
            self._on_end(container_id)

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            with contain_bugs("the list of Podman's containers"), contextlib.suppress(EngineError):
                await self._service.sweeper.retry()
                await self._service.ports.restore()
                running = {
                    list_container.id
                    for list_container in await self._service.sweeper.list_containers()
                    if list_container.running
                }
                # One that started after the list is checked in vain, and stays.
                for tracked in list(self._by_place.values()):
                    if tracked.running.alive and tracked.id not in running:
                        self.suspect(tracked.id)
                for tracked in await asyncio.to_thread(self._find_without_stores, self.all()):
                    await self._end_without_stores(tracked)

    async def _write_ports(self) -> None:
        with contain_bugs("the ports of this host"), contextlib.suppress(EngineError):
            await self._service.ports.write()
            await self._service.firewall.write()

    def _find_without_stores(self, trackeds: list[Tracked]) -> list[Tracked]:
        return [
            tracked
            for tracked in trackeds
            if tracked.running.alive and has_dead_mounts(self._folders.stores(tracked.running.place))
        ]

    async def _end_without_stores(self, tracked: Tracked) -> None:
        """End a container whose object stores are lost: only its next start sees new mounts. Raises EngineError."""
        self._without_stores.add(tracked.id)
        self.note_kill(tracked)
        request = PodmanRequest("POST", f"containers/{tracked.id}/kill", {"signal": str(int(SIGKILL))})
        await self._service.client.send(request, safe=True)

    async def _follow_events(self) -> None:
        """Check containers that Podman reports as ended; events may be missing, and none is required."""
        labels = self._service.labels.all_of_location()
        filters = msgspec.json.encode({"type": ["container"], "event": _ENDS, "label": labels}).decode()
        request = PodmanRequest("GET", "events", {"stream": "true", "filters": filters})
        while True:
            with contain_bugs("the events of Podman"), contextlib.suppress(EngineError):
                await self._read_events(request)
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _read_events(self, request: PodmanRequest) -> None:
        rest = b""
        async with self._service.client.stream(request) as parts:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    # The next full list finds what an unreadable line was about.
                    with contextlib.suppress(msgspec.DecodeError):
                        self.suspect(msgspec.json.decode(line, type=ContainerEvent).actor.id)
