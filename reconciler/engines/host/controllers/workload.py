"""Controls one workload at one location: decides, acts, and waits for the next event or moment."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from reconciler.bugs import internal_error
from reconciler.engines.host.controllers.action_errors import DECIDE, ActionErrors, action_name
from reconciler.engines.host.controllers.context import ControllerContext
from reconciler.engines.host.controllers.executions import Executions
from reconciler.engines.host.controllers.fair_turn import FairTurn, event_or_time
from reconciler.engines.host.controllers.lifecycle_hooks import HOOKS, Hooks
from reconciler.engines.host.controllers.replicas import WorkloadReplicas
from reconciler.engines.host.decisions.actions import (
    Action,
    Create,
    Decision,
    Kill,
    Remove,
    Resize,
    RunPreStop,
    ScheduleRestart,
    Start,
    StopReplica,
    Terminate,
    find_soonest_time,
)
from reconciler.engines.host.decisions.availability import exit_event
from reconciler.engines.host.decisions.replica import Ended, HookState, Phase, Replica, container_of
from reconciler.engines.host.decisions.transitions import (
    HookName,
    apply_action,
    apply_verdict,
    container_exited,
    hook_finished,
    is_default_hook,
)
from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

MAX_ACTIONS_PER_TURN = 10
"""The most actions that are carried out per decision; the next decision covers the rest, from the new state."""


class WorkloadController:
    """Keeps one workload as wanted. Everything happens in the event loop; ``run`` is its only task."""

    def __init__(self, key: Key, context: ControllerContext, pace: FairTurn) -> None:
        self.key = key
        self.wanted: WorkloadSpec | None = None
        self.busy = True
        self.rerouting = False
        """Whether a replica that ends may still get requests."""
        self._context = context
        self._errors = ActionErrors(context.clock, self._report_error, partial(context.signals.report_change, key))
        self._members = WorkloadReplicas(key, context, self._errors, self.wake)
        self.replicas = self._members.by_name
        self._restarts: list[StopReplica] = []
        self._pace = pace
        self._wake_event = asyncio.Event()
        self._turn_ended = asyncio.Event()
        self._hooks = Hooks(context.runtime, context.timing, self._on_hook_end)

    @property
    def last_error(self) -> str:
        """The current failures, for status; "" if there are none."""
        return self._errors.message

    @property
    def executions(self) -> Executions | None:
        """The executions of a cron workload; None for any other."""
        cron = self.wanted is not None and self.wanted.type is Type.CRON
        return self._members.executions if cron else None

    @property
    def is_gone(self) -> bool:
        """Whether the workload is not wanted and has no replicas left."""
        return self.wanted is None and not self.replicas

    def want(self, spec: WorkloadSpec | None) -> None:
        """Set what is wanted of the workload (None: delete it)."""
        if spec is None:
            self._context.cron_starts.forget(self.key)
        if spec != self.wanted:
            self.wanted = spec
            self.wake()

    def wake(self) -> None:
        """Request another decision."""
        self.busy = True
        self._wake_event.set()

    def stop(self, name: str) -> bool:
        """End the replica ``name``, which another one replaces; False if there is none."""
        if name not in self.replicas:
            return False
        self._restarts.append(StopReplica(name, Reason.VOLUME_CHANGED))
        self.wake()
        return True

    async def end_replica(self, name: str, reason: Reason) -> None:
        """End the replica ``name``, which another one replaces; returns once it ends, which is on disk then.

        One that is ending already goes on as before.
        """
        while (replica := self.replicas.get(name)) is not None and replica.ending is None:
            if name not in {end.replica for end in self._restarts}:
                self._restarts.append(StopReplica(name, reason))
            self.wake()
            await self._turn_ended.wait()

    def retry_starts(self) -> None:
        """Try again at once to start what waits for a volume."""
        if self._errors.retry_now(Start.__name__):
            self.wake()

    def check_files(self) -> None:
        """Write replica files again if another program has removed them."""
        if self._members.find_lost():
            self.wake()

    async def check_volumes(self) -> None:
        """Attach volumes again that replicas use, if another program has removed their locks."""
        for name, replica in [*self.replicas.items()]:
            with suppress(EngineError):  # the version of a replica that is being replaced may be unknown
                await self._context.provisioner.attach_again(replica, lambda: name in self.replicas)  # noqa: B023

    def on_replica_change(self, name: str, change: Callable[[Replica], Replica]) -> None:
        """Apply ``change`` to the replica ``name`` after an event.

        The next turn writes the file: the source of the event must not fail because of a full disk.
        """
        replica = self.replicas.get(name)
        if replica is not None:
            self._members.set(change(replica))
            self.wake()

    def on_verdict(self, verdict: Verdict) -> None:
        """Apply a changed probe verdict."""
        now = self._context.clock.monotonic()
        self.on_replica_change(verdict.place.replica, lambda it: apply_verdict(it, verdict, now))

    def adopt(self, replica: Replica, *, written: bool) -> None:
        """Take over an existing replica; its containers are watched as if they had just started."""
        self._members.adopt(replica, written=written)
        for container in replica.containers:
            if container.phase is Phase.RUNNING:
                self._watch(replica, container.name)
        self.wake()

    async def run(self) -> None:
        """Work until the workload is gone."""
        while not self.is_gone:
            self._wake_event.clear()
            self.busy = True
            wake = await self._reconcile_once()
            self._turn_ended.set()
            self._turn_ended = asyncio.Event()
            if wake is None or wake > self._context.clock.monotonic():
                self.busy = self._wake_event.is_set()
                await event_or_time(self._wake_event, self._context.clock, wake)
            # A replica becomes available as time passes, which changes its status. That moment may have passed during
            # another await, so every turn counts as a change.
            if self.executions is None:
                self._context.signals.report_change(self.key)

    async def close(self) -> None:
        """Stop running hooks; containers are not affected."""
        await self._hooks.close()

    async def _reconcile_once(self) -> float | None:
        """Decide once and act; return when to decide again, 0 for at once.

        Each action has its own error and backoff: a failing action delays no other one.
        """
        await self._pace.acquire()
        decision = self._decide()
        self._errors.retain([action_name(act) for act in decision.actions])
        due, self._restarts = (*self._restarts, *decision.actions), []
        acts = [act for act in due if self._errors.is_due(action_name(act))][:MAX_ACTIONS_PER_TURN]
        self._members.publish()
        self._members.write()
        await self._remove_from_endpoints([act for act in acts if isinstance(act, StopReplica)])
        for act in acts:
            await self._try(act)
        self._members.write()
        self._members.publish()
        return 0.0 if acts else find_soonest_time(decision.wake, self._errors.next_due())

    def _decide(self) -> Decision:
        try:
            decision = self._members.decide(self.wanted)
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
            self._record_failure(DECIDE, error)
            return Decision()
        self._errors.record_success(DECIDE)
        return decision

    async def _try(self, act: Action) -> None:
        """Carry out an action, unless one of the same name has just failed."""
        name = action_name(act)
        if not self._errors.is_due(name):
            return
        try:
            await self._apply_action(act)
        except Exception as error:  # noqa: BLE001 - a bug with one action must not take the others down
            self._record_failure(name, error)
        else:
            self._errors.record_success(name)

    def _record_failure(self, name: str, error: Exception) -> None:
        failure = error if isinstance(error, EngineError) else internal_error(error, f"workload {self.key}")
        if failure.reason == Reason.VOLUME_CHANGING:
            if self._errors.record_wait(name, str(failure)):
                self._context.signals.report(self.key, Reason.VOLUME_CHANGING, str(failure))
            return
        self._errors.record_failure(name, f"{failure.reason}: {failure}")

    async def _apply_action(self, act: Action) -> None:
        if isinstance(act, Create):
            if self.wanted is not None:
                self._members.create(self.wanted, act)
        elif isinstance(act, Remove):
            await self._members.remove(self.replicas[act.replica])
        elif isinstance(act, Start):
            await self._start(act)
        elif isinstance(act, Resize):
            await self._members.resize(self.wanted, act.replica)
        elif act.replica in self.replicas and not isinstance(act, StopReplica):
            await self._end(act)

    async def _remove_from_endpoints(self, ends: list[StopReplica]) -> None:
        """Begin the termination of replicas. They leave the endpoints, and get no new requests, before it goes on."""
        self.rerouting = bool(ends)
        try:
            for end in [end for end in ends if end.replica in self.replicas]:
                self._members.set(apply_action(self.replicas[end.replica], end, self._context.clock.monotonic()))
            if ends:
                self._members.publish()
                self._members.write()
                await self._context.traffic.synchronize(self.key)
        finally:
            self.rerouting = False

    async def _end(self, act: RunPreStop | Terminate | Kill | ScheduleRestart) -> None:
        """Perform one step of a container's termination or restart."""
        replica = apply_action(self.replicas[act.replica], act, self._context.clock.monotonic())
        self._members.set(replica)
        self._members.write()
        container = container_of(replica, act.container)
        container_id, started, total = (
            ContainerId(self.key, act.replica, act.container),
            container.started,
            container.wanted.termination_seconds,
        )
        if isinstance(act, RunPreStop):
            self._hooks.run(container_id, started, "pre_stop", container.wanted.pre_stop, total)
        elif isinstance(act, Terminate):
            self._context.probes.forget(container_id)
            await self._context.runtime.signal(container_id, signal.SIGTERM)
        elif isinstance(act, Kill):
            self._hooks.cancel(container_id, started, total)
            self._members.report_cut_off(replica)
            await self._context.runtime.signal(container_id, signal.SIGKILL)

    async def _start(self, act: Start) -> None:
        try:
            await self._members.start(act)
        except EngineError as error:
            if error.reason in (Reason.VOLUME_IN_USE, Reason.VOLUME_CHANGING):
                raise  # the container has not failed: it waits
            message = f"{error.reason}: {error}"
            now = self._context.clock.monotonic()
            self._members.set(
                container_exited(self.replicas[act.replica], act.container, now, -1, Reason.START_FAILED, message)
            )
            self._append_exit_event(self.replicas[act.replica], act.container)
            if error.reason == Reason.IMAGE_NOT_FOUND:
                self._context.signals.image_missing(self.key)
            return
        if container_of(self.replicas[act.replica], act.container).phase is Phase.RUNNING:
            self._watch(self.replicas[act.replica], act.container)

    def _watch(self, replica: Replica, name: str) -> None:
        context, container = self._context, container_of(replica, name)
        container_id = ContainerId(self.key, replica.name, name)
        if replica.ending is None or container.sigterm_at is None:
            context.probes.watch(container_id, container.wanted, replica.ports, container)
        if container.post_start is HookState.RUNNING:
            self._hooks.run(container_id, container.started, "post_start", container.wanted.post_start)

    def on_container_end(self, container_id: ContainerId, started: float, how: Ended) -> None:
        """Handle the end of the run that began at ``started``; the container may have started again since."""
        replica = self.replicas.get(container_id.replica)
        container = container_of(replica, container_id.container) if replica is not None else None
        if container is not None and started < container.started:
            return
        self._context.probes.forget(container_id)
        self._hooks.forget(container_id)
        if replica is None or container is None or container.phase is not Phase.RUNNING:
            return
        self.on_replica_change(
            container_id.replica,
            lambda it: container_exited(it, container_id.container, how.at, how.code, how.reason, how.message),
        )
        if replica.ending is None and not (replica.run is not None and how.code == 0):
            self._append_exit_event(self.replicas[container_id.replica], container_id.container)

    def _append_exit_event(self, replica: Replica, name: str) -> None:
        if (event := exit_event(container_of(replica, name))) is not None:
            reason, what = event
            self._context.signals.report(self.key, reason, f"{replica.name}: {name} {what}")

    def _on_hook_end(self, container_id: ContainerId, started: float, hook: HookName, message: str) -> None:
        """Handle the end of a hook; ``message`` is "" if it succeeded (docs/platform/workload.md#lifecycle-hooks)."""
        replica = self.replicas.get(container_id.replica)
        if replica is None or container_of(replica, container_id.container).started != started:
            return
        now, (title, reason) = self._context.clock.monotonic(), HOOKS[hook]
        error = f"the {title} hook {message}" if message else ""
        self.on_replica_change(
            container_id.replica, lambda it: hook_finished(it, container_id.container, hook, error, now)
        )
        if message and not is_default_hook(container_of(replica, container_id.container), hook):
            text = f"{container_id.replica}: the {title} hook of {container_id.container} {message}"
            self._context.signals.report(self.key, reason, text)

    def _report_error(self, message: str) -> None:
        self._context.signals.report(self.key, Reason.WORKLOAD_ERROR, message)
