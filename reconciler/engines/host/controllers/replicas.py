"""The replicas of one workload: in memory, in their files, and in the endpoints file.

A failed write is retried later. Neither a start nor an end waits for it, so that a dead container restarts on a full
disk too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from reconciler.engines.host.controllers.action_errors import ENDPOINTS, EXECUTIONS, STORE, ActionErrors
from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.executions import Executions
from reconciler.engines.host.dataplane.protocol import format_count
from reconciler.engines.host.decisions.actions import Create, Decision, Start
from reconciler.engines.host.decisions.availability import is_resizable
from reconciler.engines.host.decisions.decide import decide_actions
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.decisions.transitions import apply_action, new_replica, resize_replica
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.times import format_iso_time


class WorkloadReplicas:
    """``by_name`` contains the known replicas. Failures of writes go to ``errors``; ``wake`` requests a decision."""

    def __init__(self, key: Key, context: ControllerContext, errors: ActionErrors, wake: Callable[[], None]) -> None:
        self.by_name: dict[str, Replica] = {}
        self.executions = Executions(key, context)
        self._key = key
        self._context = context
        self._store = context.store
        self._endpoints = context.endpoints
        self._errors = errors
        self._wake = wake
        self._changed = partial(context.signals.report_change, key)
        self._unwritten: set[str] = set()

    def decide(self, spec: WorkloadSpec | None) -> Decision:
        """The actions that are due now."""
        replicas, context = tuple(self.by_name.values()), self._context
        if spec is not None and spec.type is Type.CRON:
            context.cron_starts.release(self._key, replicas)
            decision, error = self.executions.decide(spec, replicas)
            self._note(EXECUTIONS, error)
            return context.cron_starts.admit(self._key, decision, self._wake)
        return decide_actions(spec, replicas, context.clock.monotonic(), context.timing)

    def create(self, spec: WorkloadSpec, act: Create) -> None:
        """Add a new replica. Raises EngineError, and does not add it, if its file cannot be written.

        After a crash the ports of an unwritten replica would be unknown.
        """
        context, now = self._context, self._context.clock.monotonic()
        if act.execution and not context.cron_starts.take(self._key, act.execution):
            return
        name = act.execution or context.replica_name(self._key, act.index, self.by_name)
        replica = new_replica(spec, act.index, name, now, format_iso_time(context.clock.now()))
        if act.execution:
            replica = self.executions.begin(replica, spec)
            context.provisioner.store_template(replica)
        replica = msgspec.structs.replace(replica, ports=context.provisioner.ports(spec, name))
        try:
            self._store.save(replica)
        except EngineError:
            context.provisioner.release_ports(replica)
            raise
        self.by_name[replica.name] = replica
        self._changed()
        if act.execution:
            self.executions.record_start(replica)

    def adopt(self, replica: Replica, *, written: bool) -> None:
        """Add a replica that an earlier daemon left; ``written`` is whether its file is up to date."""
        self.by_name[replica.name] = replica
        for container in replica.containers:
            self._collect(ContainerId(self._key, replica.name, container.name))
        if not written:
            self._unwritten.add(replica.name)

    def set(self, replica: Replica) -> None:
        """Replace a replica with its changed value; ``write`` writes it."""
        if self.by_name.get(replica.name) != replica:
            self.by_name[replica.name] = replica
            self._unwritten.add(replica.name)
            self._changed()

    async def start(self, act: Start) -> None:
        """Start a container of a replica, unless it ends meanwhile. Raises EngineError."""
        context = self._context
        await context.provisioner.attach(self.by_name[act.replica], act.container)
        replica = self.by_name[act.replica]
        if replica.ending is not None:
            return
        ports = context.provisioner.reassign_ports(replica, act.container)
        if ports != replica.ports:
            replica = msgspec.structs.replace(replica, ports=ports)
        launch = context.provisioner.launch(replica, act.container)
        self.set(apply_action(replica, act, context.clock.monotonic()))
        self.write()
        # Before the start: a short program is over when it returns.
        self._collect(launch.place)
        await context.runtime.start(launch)

    async def remove(self, replica: Replica) -> None:
        """Remove an ended replica, all that was made for it, and its file. Raises EngineError."""
        context = self._context
        for container in replica.containers:
            container_id = ContainerId(self._key, replica.name, container.name)
            context.probes.forget(container_id)
            await context.logs.forget(container_id)
        await context.runtime.remove(self._key, replica.name)
        await context.provisioner.release(replica)
        self._store.remove(self._key, replica.name)
        del self.by_name[replica.name]
        self._changed()

    async def resize(self, spec: WorkloadSpec | None, name: str) -> None:
        """Give a running replica the wanted limits, unless it needs none. If that fails, a rollout replaces it.

        Raises EngineError.
        """
        replica = self.by_name.get(name)
        if spec is None or replica is None or not is_resizable(spec, replica):
            return
        try:
            for container in spec.containers:
                await self._context.runtime.resize(
                    ContainerId(self._key, name, container.name), container.cpu, container.memory
                )
        except EngineError:
            self.set(msgspec.structs.replace(self.by_name[name], base_hash=""))
            raise
        self.set(resize_replica(spec, self.by_name[name]))

    def find_lost(self) -> bool:
        """Whether written files are missing; ``write`` and ``publish`` then write them again."""
        lost = {name for name in self.by_name if not self._store.holds(self._key, name)}
        self._unwritten |= lost
        return self._endpoints.is_lost(self._key) or bool(lost)

    def write(self) -> None:
        """Write all changed replicas; those that fail stay pending."""
        error: EngineError | None = None
        self._unwritten &= self.by_name.keys()
        for name in sorted(self._unwritten):
            try:
                self._store.save(self.by_name[name])
                self._unwritten.discard(name)
            except EngineError as failure:
                error = failure
        self._note(STORE, error)

    def report_cut_off(self, replica: Replica) -> None:
        """Report the requests of an ending replica that is killed now, at the first of its containers."""
        if replica.ending is None or sum(container.sigkill_at is not None for container in replica.containers) > 1:
            return
        if count := self._context.traffic.open_requests(self._key, replica.name):
            counted = format_count(self._context.traffic.counted, count)
            text = f"{replica.name}: {counted} cut off, since the termination grace period is over"
            self._context.signals.report(self._key, Reason.REQUESTS_CUT_OFF, text)

    def publish(self) -> None:
        """Set the endpoints to the ready replicas."""
        error: EngineError | None = None
        try:
            self._endpoints.publish(self._key, [replica for replica in self.by_name.values() if replica.run is None])
        except EngineError as failure:
            error = failure
        self._note(ENDPOINTS, error)

    def _collect(self, container_id: ContainerId) -> None:
        """Collect all that a container writes, or wrote while no daemon ran."""
        runtime = self._context.runtime
        self._context.logs.watch(container_id, runtime.output(container_id), runtime.output_form(container_id))

    def _note(self, name: str, error: EngineError | None) -> None:
        if error is None:
            self._errors.record_success(name)
        elif self._errors.is_due(name):
            self._errors.record_failure(name, f"{error.reason}: {error}")
