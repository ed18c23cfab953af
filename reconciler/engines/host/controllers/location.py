"""All workloads of one location: runs a controller for each and dispatches container events to it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from reconciler.bugs import contain_bugs
from reconciler.engines.host.check_container import is_check
from reconciler.engines.host.controllers.adoption import LabelContext, how_ended, rebuild_replica, resume_replica
from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.executions import log_path, remove_logs
from reconciler.engines.host.controllers.fair_turn import FairTurn
from reconciler.engines.host.controllers.workload import WorkloadController
from reconciler.engines.host.decisions.availability import is_current
from reconciler.engines.host.decisions.progress import running_replicas
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.transitions import evict_replica
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId, RunningContainer
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.protocol import ReplicaCounts
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.engines.workload_commands import refuse_missing_replica
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
        for tracked in (self.workloads, self._tasks, self._adoptable, self._outdated_files, self._untracked):
            tracked.clear()
        await context.runtime.open(self.on_container_end)
        running = {container.place: container for container in await context.runtime.list()}
        for identity in [
            container_id for container_id in running if is_check(container_id)
        ]:  # of a daemon that was killed
            del running[identity]
            with suppress(EngineError):
                await context.runtime.remove(identity.key, identity.replica)
        stored, removed = context.store.load()
        alive = {
            (container_id.key, container_id.replica) for container_id, container in running.items() if container.alive
        }
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
        tracked = {(replica.key, replica.name) for replica in stored}
        for identity, running_container in running.items():
            if (identity.key, identity.replica) not in tracked:
                context.provisioner.reserve_ports(identity.key, identity.replica, running_container.ports)
                self._untracked.setdefault(identity.key, []).append(running_container)
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

    def want(self, _template: ReplicaTemplate, spec: WorkloadSpec) -> WorkloadSpec:
        """Set what is wanted of a workload."""
        self.set_wanted(spec.key, spec)
        return spec

    def end(self, key: Key) -> None:
        """End all replicas of a workload."""
        self.set_wanted(key, None)

    def set_wanted(self, key: Key, spec: WorkloadSpec | None) -> None:
        """Set what is wanted of the workload ``key`` (None: delete it)."""
        if spec is None and not (key in self.workloads or key in self._adoptable or key in self._untracked):
            return
        controller = self._controller(key)
        controller.want(spec)
        if key in self._adoptable or key in self._untracked:
            # One that has ended since `open` had no controller then.
            self._request_sweep()
        for replica in self._adoptable.pop(key, ()):
            controller.adopt(replica, written=(key, replica.name) not in self._outdated_files)
            self._outdated_files.discard((key, replica.name))
        for replica in self._rebuild_replicas(key, spec):
            controller.adopt(replica, written=False)
        controller.wake()

    def replicas(self, key: Key) -> tuple[Replica, ...]:
        """The replicas of ``key``, including those that an earlier daemon left."""
        controller = self.workloads.get(key)
        return (*(controller.replicas.values() if controller is not None else ()), *self._adoptable.get(key, ()))

    def images_of(self, key: Key, version: int) -> dict[str, str]:
        """The image by container of the replicas of a version, as the newest one has it, or the labels without one."""
        replicas = sorted(
            (replica for replica in self.replicas(key) if replica.version == version), key=lambda it: it.created
        )
        listed = [
            (container.place.container, container.image)
            for container in self._untracked.get(key, ())
            if container.version == version
        ]
        members = [(container.name, container.wanted.image) for replica in replicas for container in replica.containers]
        return {name: image for name, image in (*listed, *members) if image}

    def images(self) -> set[str]:
        """The images of all replicas, the ending ones included."""
        keys = self.workloads.keys() | self._adoptable.keys()
        containers = (container for key in keys for replica in self.replicas(key) for container in replica.containers)
        return {container.wanted.image for container in containers if container.wanted.image}

    def replica_counts(self) -> ReplicaCounts:
        """The number of replicas that run and that are wanted, and whether work is due at once."""
        controllers = self.workloads.values()
        counts = [
            running_replicas(controller.wanted, tuple(controller.replicas.values())) for controller in controllers
        ]
        busy = any(controller.busy for controller in controllers)
        return ReplicaCounts(sum(count[0] for count in counts), sum(count[1] for count in counts), busy)

    async def _prune(self) -> None:
        """Remove what a crash left of unknown replicas. Raises EngineError."""
        names = self._replica_names()
        await self._context.provisioner.prune(names)
        await self._context.runtime.prune(names)

    async def _store_outputs(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Store the output of all replicas but ``replicas``: those of an earlier boot, and what a crash left."""
        for file in await asyncio.to_thread(self._context.runtime.outputs):
            if (file.place.key, file.place.replica) not in replicas:
                self._context.logs.watch(file.place, file.path, file.form)
                await self._context.logs.forget(file.place)

    def _replica_names(self) -> set[tuple[Key, str]]:
        """Workload and name of every replica that exists."""
        keys = self.workloads.keys() | self._adoptable.keys()
        names = {(key, replica.name) for key in keys for replica in self.replicas(key)}
        return names | {
            (key, container.place.replica) for key, containers in self._untracked.items() for container in containers
        }

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
            controller.on_replica_change(replica.name, lambda it: evict_replica(it, now))
            text = f"{replica.name} is replaced: {message}"
            self._context.signals.report(replica.key, Reason.EVICTED, text)

    def stop(self, holder: str) -> bool:
        """End the replica that holds a volume, which another one replaces; False if there is none."""
        key, name = parse_holder(holder)
        controller = self.workloads.get(key)
        return controller is not None and controller.stop(name)

    async def stop_replica(self, key: Key, name: str) -> dict[str, Any]:
        """End the replica ``name`` of ``key``, as someone asks for; another one replaces it. Raises EngineError."""
        controller = self.workloads.get(key)
        if controller is None or name not in controller.replicas:
            refuse_missing_replica(key, name, controller.replicas if controller is not None else ())
        await controller.end_replica(name, Reason.REPLICA_STOPPED)
        return {"replica": name}

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
                with contain_bugs(f"files of {controller.key}"):
                    controller.check_files()
                    await controller.check_volumes()

    def live_replicas(self) -> list[Replica]:
        """All controlled replicas that are not ending."""
        return [replica for replica in self.all_replicas() if replica.ending is None]

    def all_replicas(self) -> list[Replica]:
        """All controlled replicas."""
        return [replica for controller in self.workloads.values() for replica in controller.replicas.values()]

    def current_replicas(self) -> list[Replica]:
        """The replicas that are as wanted: those of former versions, which a rollout replaces, are not."""
        return [
            replica
            for controller in self.workloads.values()
            if controller.wanted is not None
            for replica in controller.replicas.values()
            if is_current(controller.wanted, replica)
        ]

    async def _discover(self) -> None:
        while self._sweep_due:
            self._sweep_due = False
            now = self._context.clock.monotonic()
            for container in await self._context.runtime.list():
                controller = self.workloads.get(container.place.key)
                if not container.alive and controller is not None:
                    controller.on_container_end(container.place, container.started, how_ended(container, now))

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
        self._context.signals.report_change(controller.key)

    def _rebuild_replicas(self, key: Key, spec: WorkloadSpec | None) -> list[Replica]:
        """Rebuild the replicas that are known only by the labels of running containers."""
        if key not in self._untracked:
            return []
        by_name: dict[str, list[RunningContainer]] = {}
        for container in self._untracked.pop(key):
            by_name.setdefault(container.place.replica, []).append(container)
        clock, listed = self._context.clock, self._context.endpoints.previous_names(key)
        return [
            rebuild_replica(name, containers, spec, LabelContext(clock.monotonic(), clock.now(), listed))
            for name, containers in sorted(by_name.items())
        ]
