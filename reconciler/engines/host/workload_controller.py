"""One workload at one location: decides, carries out what was decided, and waits for the next event or moment."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import msgspec

from reconciler.clock import iso
from reconciler.engines.execution import messages
from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.host.decisions.actions import (
    Action,
    Create,
    Kill,
    Remove,
    RunPreStop,
    ScheduleRestart,
    Start,
    StopReplica,
    Terminate,
)
from reconciler.engines.host.decisions.decide import decide
from reconciler.engines.host.decisions.transitions import (
    HookName,
    apply_action,
    apply_verdict,
    container_exited,
    hook_finished,
    new_replica,
)
from reconciler.engines.host.fair_turn import FairTurn
from reconciler.engines.host.lifecycle_hooks import Hooks
from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.host.replica import Ended, Hook, Phase, Replica, container_of
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.services import HostServices
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.protocol import EngineEvent
from reconciler.errors import EngineError
from reconciler.model.key import Key

ERROR_RETRY_SECONDS = (1.0, 30.0)
"""Seconds until what failed is tried again: at first, and at most."""

EVERY = 10
"""Of the ends of a container in a row, the first is told and then every tenth."""

MAX_ACTIONS_PER_TURN = 10
"""Acts that are carried out of one decision; about the rest it is decided anew, by what has happened meanwhile."""


class WorkloadController:
    """Keeps one workload as it is wanted. Everything happens in the event loop; ``run`` is its one task."""

    def __init__(self, key: Key, tools: HostServices, pace: FairTurn) -> None:
        self.key = key
        self.wanted: WorkloadSpec | None = None
        self.replicas: dict[str, Replica] = {}
        self.last_error = ""
        self._unwritten: set[str] = set()
        self._services = tools
        self._pace = pace
        self._wake_event = asyncio.Event()
        self._hooks = Hooks(tools.runtime, tools.timing, self._hooked)
        self._failures = 0

    @property
    def gone(self) -> bool:
        """Whether the workload is not wanted and nothing is left of it."""
        return self.wanted is None and not self.replicas

    def want(self, wanted: WorkloadSpec | None) -> None:
        """Let the workload be as ``wanted`` (None: gone)."""
        if wanted != self.wanted:
            self.wanted = wanted
            self.wake()

    def wake(self) -> None:
        """Decide again."""
        self._wake_event.set()

    def on_replica_change(self, name: str, change: Callable[[Replica], Replica]) -> None:
        """Something happened to the replica ``name``: ``change`` says what has become of it.

        It is written down in the next turn: whoever tells has nothing to do with a full disk.
        """
        replica = self.replicas.get(name)
        if replica is not None:
            self._set(change(replica))
            self.wake()

    def probed(self, verdict: Verdict) -> None:
        """The verdict on a container is another one."""
        now = self._services.clock.monotonic()
        self.on_replica_change(verdict.place.replica, lambda it: apply_verdict(it, verdict, now))

    def adopt(self, replica: Replica) -> None:
        """Take a replica over that was there before: its containers are watched as if they had just been started."""
        self.replicas[replica.name] = replica
        for container in replica.containers:
            if container.phase is Phase.RUNNING:
                self._watch(replica, container.name)
        self.wake()

    async def run(self) -> None:
        """Work until the workload is gone."""
        while not self.gone:
            self._wake_event.clear()
            wake = await self._reconcile_once()
            if wake is None or wake > self._services.clock.monotonic():
                await self._pause(wake)

    async def close(self) -> None:
        """Stop what is under way; nothing is done to what runs."""
        await self._hooks.close()

    async def _reconcile_once(self) -> float | None:
        """Decide once and carry it out; when to decide again, 0 for at once."""
        await self._pace.acquire()
        now = self._services.clock.monotonic()
        decision = decide(self.wanted, tuple(self.replicas.values()), now, self._services.timing)
        acts = decision.actions[:MAX_ACTIONS_PER_TURN]
        try:
            self._services.endpoints.publish(self.key, self.replicas.values())
            self._write()
            self._remove_from_endpoints([act for act in acts if isinstance(act, StopReplica)])
            for act in acts:
                await self._apply_action(act)
            self._write()
            self._services.endpoints.publish(self.key, self.replicas.values())
        except EngineError as error:
            return self._on_error(f"{error.reason}: {error}")
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
            return self._on_error(f"EngineBug: {type(error).__name__} at {messages.raise_location(error)}")
        self._clear_error()
        return 0.0 if decision.actions else decision.wake

    async def _apply_action(self, act: Action) -> None:
        if isinstance(act, Create):
            self._create(act)
        elif isinstance(act, Remove):
            await self._remove(self.replicas[act.replica])
        elif isinstance(act, Start):
            await self._start(act)
        elif act.replica in self.replicas and not isinstance(act, StopReplica):
            await self._end(act)

    def _remove_from_endpoints(self, ends: list[StopReplica]) -> None:
        """Begin the ends of replicas: the pool hears of it before anything else is done."""
        for end in ends:
            self._set(apply_action(self.replicas[end.replica], end, self._services.clock.monotonic()))
        if ends:
            self._services.endpoints.publish(self.key, self.replicas.values())
            self._write()

    async def _end(self, act: RunPreStop | Terminate | Kill | ScheduleRestart) -> None:
        """A step towards the end of a container."""
        replica = apply_action(self.replicas[act.replica], act, self._services.clock.monotonic())
        self._set(replica)
        self._write()
        place, started = ContainerId(self.key, act.replica, act.container), container_of(replica, act.container).started
        if isinstance(act, RunPreStop):
            self._hooks.run(place, started, "pre_stop", container_of(replica, act.container).wanted.pre_stop)
        elif isinstance(act, Terminate):
            self._services.probes.forget(place)
            await self._services.runtime.signal(place, signal.SIGTERM)
        elif isinstance(act, Kill):
            self._hooks.cancel(place, started)
            await self._services.runtime.signal(place, signal.SIGKILL)

    def _create(self, act: Create) -> None:
        if self.wanted is None:
            return
        tools, now = self._services, self._services.clock.monotonic()
        name = tools.replica_name(self.key, act.index, self.replicas)
        replica = new_replica(self.wanted, act.index, name, now, iso(tools.clock.now()))
        self._set(msgspec.structs.replace(replica, ports=tools.provisioner.ports(self.wanted, name)))

    async def _start(self, act: Start) -> None:
        tools, replica = self._services, self.replicas[act.replica]
        try:
            ports = tools.provisioner.reassign_ports(replica, act.container)
            if ports != replica.ports:
                replica = msgspec.structs.replace(replica, ports=ports)
            launch = tools.provisioner.launch(replica, act.container)
            self._set(apply_action(replica, act, tools.clock.monotonic()))
            self._write()
            await tools.runtime.start(launch)
        except EngineError as error:
            message = f"{error.reason}: {error}"
            now = tools.clock.monotonic()
            self._set(container_exited(self.replicas[act.replica], act.container, now, -1, "NotStarted", message))
            self._append_exit_event(self.replicas[act.replica], act.container)
            return
        if container_of(self.replicas[act.replica], act.container).phase is Phase.RUNNING:
            self._watch(self.replicas[act.replica], act.container)

    def _watch(self, replica: Replica, name: str) -> None:
        tools, container = self._services, container_of(replica, name)
        place = ContainerId(self.key, replica.name, name)
        tools.logs.watch(place, tools.runtime.output(place))
        if replica.ending is None or container.termed is None:
            tools.probes.watch(place, container.wanted, replica.ports, container)
        if container.post_start is Hook.RUNNING:
            self._hooks.run(place, container.started, "post_start", container.wanted.post_start)

    async def _remove(self, replica: Replica) -> None:
        tools = self._services
        for container in replica.containers:
            place = ContainerId(self.key, replica.name, container.name)
            tools.probes.forget(place)
            await tools.logs.forget(place)
        await tools.runtime.remove(self.key, replica.name)
        await tools.provisioner.release(replica)
        tools.store.remove(self.key, replica.name)
        del self.replicas[replica.name]
        tools.changed()

    def ended(self, place: ContainerId, how: Ended) -> None:
        """A container has ended."""
        self._services.probes.forget(place)
        self._hooks.forget(place)
        replica = self.replicas.get(place.replica)
        if replica is None or container_of(replica, place.container).phase is not Phase.RUNNING:
            return
        self.on_replica_change(
            place.replica, lambda it: container_exited(it, place.container, how.at, how.code, how.reason, how.message)
        )
        if replica.ending is None:
            self._append_exit_event(self.replicas[place.replica], place.container)

    def _append_exit_event(self, replica: Replica, name: str) -> None:
        container = container_of(replica, name)
        if container.failures % EVERY or container.last is None:
            return
        said = f": {container.last.message}" if container.last.message else ""
        reason = "NotStarted" if container.last.reason == "NotStarted" else "ContainerEnded"
        what = "could not be started" if reason == "NotStarted" else f"ended with {container.last.code}"
        self._services.append_event(EngineEvent(self.key, "Warning", reason, f"{replica.name}: {name} {what}{said}"))

    def _hooked(self, place: ContainerId, started: float, hook: HookName, message: str) -> None:
        """A hook is over; ``message`` is "" where it went well (document 1, Events)."""
        replica = self.replicas.get(place.replica)
        if replica is None or container_of(replica, place.container).started != started:
            return
        now = self._services.clock.monotonic()
        self.on_replica_change(place.replica, lambda it: hook_finished(it, place.container, hook, message, now))
        if message and hook == "pre_stop":
            text = f"{place.replica}: the preStop hook of {place.container} {message}"
            self._services.append_event(EngineEvent(self.key, "Warning", "PreStopFailed", text))

    def _set(self, replica: Replica) -> None:
        """Keep what has become of a replica; nothing is done to it before it is written down."""
        if self.replicas.get(replica.name) != replica:
            self.replicas[replica.name] = replica
            self._unwritten.add(replica.name)
            self._services.changed()

    def _write(self) -> None:
        """Write down what has changed. Raises EngineError."""
        for name in sorted(self._unwritten):
            if name in self.replicas:
                self._services.store.save(self.replicas[name])
            self._unwritten.discard(name)

    def _on_error(self, message: str) -> float:
        if message != self.last_error:
            self.last_error = message
            self._services.append_event(EngineEvent(self.key, "Warning", "HostTrouble", message))
            self._services.changed()
        first, most = ERROR_RETRY_SECONDS
        self._failures += 1
        return self._services.clock.monotonic() + longest_wait(RetryPolicy(first, most), self._failures)

    def _clear_error(self) -> None:
        self._failures = 0
        if self.last_error:
            self.last_error = ""
            self._services.changed()

    async def _pause(self, wake: float | None) -> None:
        """Wait for an event or for the moment ``wake``."""
        if self._wake_event.is_set():
            return
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._wake_event.wait())]
        if wake is not None:
            waits.append(asyncio.create_task(self._services.clock.sleep(wake - self._services.clock.monotonic())))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        if not self._wake_event.is_set():
            self._services.changed()
