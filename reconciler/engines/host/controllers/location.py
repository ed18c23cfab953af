"""All workloads of one location: runs a controller for each and dispatches container events to it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from reconciler.bugs import contained
from reconciler.engines.host.check_container import is_check
from reconciler.engines.host.controllers.adoption import LabelContext, how_ended, rebuild_replica, resume_replica
from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.executions import log_path, remove_logs
from reconciler.engines.host.controllers.fair_turn import FairTurn
from reconciler.engines.host.controllers.workload import WorkloadController
from reconciler.engines.host.decisions.progress import running_replicas
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.transitions import evicted
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.protocol import ReplicaCounts
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait, wait_at_most

CHECK_FILES = 30.0
"""Seconds between two checks for removed files."""


class LocationController(LocationPart):
    """Keeps the workloads of a location as wanted, from ``open`` to ``close``; containers run on after it."""

    def __init__(self, context: ControllerContext) -> None:
        self.workloads: dict[Key, WorkloadController] = {}
        self._context = context
        self._pace = FairTurn()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._adoptable: dict[Key, list[Replica]] = {}
        self._outdated_files: set[tuple[Key, str]] = set()
        self._untracked: dict[Key, list[RunningContainer]] = {}
        self._sweep: asyncio.Task[None] | None = None
        self._sweep_due = False

    async def open(self, _records: Sequence[Record] = ()) -> None:
        """Adopt what runs; replicas of unrecorded workloads run until ``retain``. Raises EngineError."""
        context = self._context
        # An earlier try may have failed halfway, and have been closed.
        for known in (self.workloads, self._tasks, self._adoptable, self._outdated_files, self._untracked):
            known.clear()
        await context.runtime.open(self.on_container_end)
        running = {each.place: each for each in await context.runtime.list()}
        for place in [each for each in running if is_check(each)]:  # of a daemon that was killed
            del running[place]
            with suppress(EngineError):
                await context.runtime.remove(place.key, place.replica)
        stored, removed = context.store.load()
        alive = {(place.key, place.replica) for place, each in running.items() if each.alive}
        await self._store_outputs({(replica.key, replica.name) for replica in stored} | alive)
        for key, name in removed:
            if (key, name) in alive:
                continue
            # What cannot be removed now is removed at a later start.
            with suppress(EngineError):
                await context.runtime.remove(key, name)
                context.store.remove(key, name)
        for replica in stored:
            context.provisioner.reserve_ports(replica.key, replica.name, replica.ports)
            resumed = resume_replica(replica, running, context.clock.monotonic())
            self._adoptable.setdefault(replica.key, []).append(resumed)
            if resumed != replica:
                self._outdated_files.add((replica.key, replica.name))
        known = {(replica.key, replica.name) for replica in stored}
        for place, each in running.items():
            if (place.key, place.replica) not in known:
                context.provisioner.reserve_ports(place.key, place.replica, each.ports)
                self._untracked.setdefault(place.key, []).append(each)
        # Before any replica is created: what a new one has by then would be removed too.
        await self._prune()

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Looks for files that other programs remove."""
        return (self.check_files(),)

    def begin_schedules(self) -> None:
        """Let all cron workloads decide what is due."""
        self.check_schedules()

    def retain(self, keys: Collection[Key]) -> None:
        """End adopted replicas of all workloads but ``keys``.

        Replicas of a recorded workload that failed to load run on, uncontrolled, until it is wanted again. Containers
        without a replica file stay: if the records were lost, their workload may still be wanted.
        """
        remove_logs(self._context.store.root, keys)
        for key in self._adoptable.keys() - keys:
            self.end(key)

    def want(self, _template: ReplicaTemplate, wanted: WorkloadSpec) -> WorkloadSpec:
        """Set what is wanted of a workload."""
        self.set_wanted(wanted.key, wanted)
        return wanted

    def end(self, key: Key) -> None:
        """End all replicas of a workload."""
        self.set_wanted(key, None)

    def set_wanted(self, key: Key, wanted: WorkloadSpec | None) -> None:
        """Set what is wanted of the workload ``key`` (None: delete it)."""
        if wanted is None and not (key in self.workloads or key in self._adoptable or key in self._untracked):
            return
        controller = self._controller(key)
        controller.want(wanted)
        if key in self._adoptable or key in self._untracked:
            # One that has ended since `open` had no controller then.
            self._request_sweep()
        for replica in self._adoptable.pop(key, ()):
            controller.adopt(replica, written=(key, replica.name) not in self._outdated_files)
            self._outdated_files.discard((key, replica.name))
        for replica in self._rebuild_replicas(key, wanted):
            controller.adopt(replica, written=False)
        controller.wake()

    def replicas(self, key: Key) -> tuple[Replica, ...]:
        """The replicas of ``key``, including those that an earlier daemon left."""
        controller = self.workloads.get(key)
        return (*(controller.replicas.values() if controller is not None else ()), *self._adoptable.get(key, ()))

    def images_of(self, key: Key, version: int) -> dict[str, str]:
        """The image by container of the replicas of a version, as the newest one has it, or the labels without one."""
        replicas = sorted((each for each in self.replicas(key) if each.version == version), key=lambda it: it.created)
        listed = [
            (each.place.container, each.image) for each in self._untracked.get(key, ()) if each.version == version
        ]
        members = [(each.name, each.wanted.image) for replica in replicas for each in replica.containers]
        return {name: image for name, image in (*listed, *members) if image}

    def images(self) -> set[str]:
        """The images of all replicas, the ending ones included."""
        keys = self.workloads.keys() | self._adoptable.keys()
        found = (container for key in keys for replica in self.replicas(key) for container in replica.containers)
        return {each.wanted.image for each in found if each.wanted.image}

    def replica_counts(self) -> ReplicaCounts:
        """The number of replicas that run and that are wanted, and whether work is due at once."""
        controllers = self.workloads.values()
        counts = [
            running_replicas(controller.wanted, tuple(controller.replicas.values())) for controller in controllers
        ]
        busy = any(controller.busy for controller in controllers)
        return ReplicaCounts(sum(each[0] for each in counts), sum(each[1] for each in counts), busy)

    async def _prune(self) -> None:
        """Remove what a crash left of unknown replicas. Raises EngineError."""
        known = self._replica_names()
        await self._context.provisioner.prune(known)
        await self._context.runtime.prune(known)

    async def _store_outputs(self, known: Collection[tuple[Key, str]]) -> None:
        """Store the output of all replicas but ``known``: those of an earlier boot, and what a crash left."""
        for each in await asyncio.to_thread(self._context.runtime.outputs):
            if (each.place.key, each.place.replica) not in known:
                self._context.logs.watch(each.place, each.path, each.form)
                await self._context.logs.forget(each.place)

    def _replica_names(self) -> set[tuple[Key, str]]:
        """Workload and name of every replica that exists."""
        keys = self.workloads.keys() | self._adoptable.keys()
        known = {(key, replica.name) for key in keys for replica in self.replicas(key)}
        return known | {(key, each.place.replica) for key, found in self._untracked.items() for each in found}

    def error(self, key: Key) -> str:
        """What its controller fails to do."""
        controller = self.workloads.get(key)
        return controller.last_error if controller is not None else ""

    def is_removed(self, key: Key) -> bool:
        """Whether nothing is left of the workload ``key``."""
        return key not in self.workloads

    async def close(self) -> None:
        """Stop controlling and probing; containers keep running."""
        await self._context.probes.close()
        await cancel_and_wait(self._tasks.values(), "workload controllers")
        for controller in self.workloads.values():
            await controller.close()
        if self._sweep is not None:
            await wait_at_most((self._sweep,), "the check of ended containers")
        await self._context.runtime.close()

    def on_container_end(self, _place: ContainerId) -> None:
        """Handle the end of a container; a single check finds all containers that end at the same time."""
        self._request_sweep()

    def _request_sweep(self) -> None:
        self._sweep_due = True
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._discover())

    def on_verdict(self, verdict: Verdict) -> None:
        """Pass a changed probe verdict to the controller of its workload."""
        controller = self.workloads.get(verdict.place.key)
        if controller is not None:
            controller.on_verdict(verdict)

    def check_schedules(self) -> None:
        """Let all cron workloads decide: the clock was set, or the machine was suspended."""
        for controller in self.workloads.values():
            if controller.executions is not None:
                controller.wake()

    def evict(self, replica: Replica, message: str) -> None:
        """End a replica at once and record why; a new replica replaces it."""
        controller, now = self.workloads.get(replica.key), self._context.clock.monotonic()
        if controller is not None and replica.name in controller.replicas:
            controller.on_replica_change(replica.name, lambda it: evicted(it, now))
            text = f"{replica.name} is replaced: {message}"
            self._context.signals.report(replica.key, Reason.EVICTED, text)

    def stop(self, holder: str) -> bool:
        """End the replica that holds a volume, which another one replaces; False if there is none."""
        key, name = parse_holder(holder)
        controller = self.workloads.get(key)
        return controller is not None and controller.stop(name)

    def retry_starts(self) -> None:
        """Try again at once to start what waits for a volume."""
        for controller in self.workloads.values():
            controller.retry_starts()

    async def check_files(self) -> None:
        """Check at intervals for files that another program removed; runs until cancelled.

        The next daemon continues from these files, and ``top`` and clients read them.
        """
        while True:
            await self._context.clock.sleep(CHECK_FILES)
            for controller in [*self.workloads.values()]:
                with contained(f"files of {controller.key}"):
                    controller.check_files()
                    await controller.check_volumes()

    def live_replicas(self) -> list[Replica]:
        """All controlled replicas that are not ending."""
        return [replica for replica in self.all_replicas() if replica.ending is None]

    def all_replicas(self) -> list[Replica]:
        """All controlled replicas."""
        return [replica for controller in self.workloads.values() for replica in controller.replicas.values()]

    async def _discover(self) -> None:
        while self._sweep_due:
            self._sweep_due = False
            now = self._context.clock.monotonic()
            for each in await self._context.runtime.list():
                controller = self.workloads.get(each.place.key)
                if not each.alive and controller is not None:
                    controller.on_container_end(each.place, each.started, how_ended(each, now))

    def _controller(self, key: Key) -> WorkloadController:
        if key not in self.workloads:
            controller = self.workloads[key] = WorkloadController(key, self._context, self._pace)
            self._tasks[key] = asyncio.create_task(self._keep(controller), name=f"keep {key}")
        return self.workloads[key]

    async def _keep(self, controller: WorkloadController) -> None:
        await controller.run()
        del self.workloads[controller.key], self._tasks[controller.key]
        self._context.endpoints.remove(controller.key)
        log_path(self._context.store.root, controller.key).unlink(missing_ok=True)
        self._context.signals.changed(controller.key)

    def _rebuild_replicas(self, key: Key, wanted: WorkloadSpec | None) -> list[Replica]:
        """Rebuild the replicas that are known only by the labels of running containers."""
        if key not in self._untracked:
            return []
        by_name: dict[str, list[RunningContainer]] = {}
        for each in self._untracked.pop(key):
            by_name.setdefault(each.place.replica, []).append(each)
        clock, listed = self._context.clock, self._context.endpoints.previous_names(key)
        return [
            rebuild_replica(name, found, wanted, LabelContext(clock.monotonic(), clock.now(), listed))
            for name, found in sorted(by_name.items())
        ]
