"""Ask the containers of a location how they are, each at its own pace, and tell when the verdict on one changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from zlib import crc32

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.engines.host.probes.checks import ExecRuntime, ProbeTarget, run_probe
from reconciler.engines.host.probes.state import ProbeKind, ProbeState, Verdict, after, initial, next_due
from reconciler.engines.host.replica import Container
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.spec import ContainerSpec
from reconciler.model.kinds.workload import Probe
from reconciler.tasks import cancel_and_wait

Tell = Callable[[Verdict], None]
"""Called in the event loop when the verdict on a container changes."""


class Prober:
    """One task for each probe of each container that is watched."""

    def __init__(self, runtime: ExecRuntime, clock: Clock, tell: Tell) -> None:
        self._runtime = runtime
        self._clock = clock
        self._publish = tell
        self._tasks: dict[ContainerId, list[asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def watch(self, place: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: Container) -> None:
        """Probe a running container from now on, in place of what was done about it before.

        Of ``seen`` count the start, and with ``ready`` the last verdict: it stands until the probe has failed or
        succeeded often enough. A container that was ready is told not ready, or the other way round; one that was not
        is also told not ready once it has failed often enough since its start, so that it is known why. A liveness
        probe that has failed is not asked again before the next start. To be called in the event loop.
        """
        self.forget(place)
        asked = ProbeTarget(place, container, dict(ports))
        probes = (
            (ProbeKind.READINESS, container.readiness, seen.ready),
            (ProbeKind.LIVENESS, container.liveness, True),
        )
        self._tasks[place] = [
            asyncio.create_task(
                self._follow(asked, _Question(kind, probe, seen.started), initial(kind, good)),
                name=f"{kind} probe of {place}",
            )
            for kind, probe, good in probes
            if probe is not None
        ]

    def forget(self, place: ContainerId) -> None:
        """Stop probing a container; nothing is told of it any more. Fine where it is not probed."""
        for task in self._tasks.pop(place, ()):
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop probing; returns when no probe is under way, or after a bounded time."""
        for place in list(self._tasks):
            self.forget(place)
        await cancel_and_wait(self._ending, "probes")

    def _is_current(self, place: ContainerId) -> bool:
        """Whether the task that calls this still probes ``place``: a former start of it is no matter of anybody."""
        return asyncio.current_task() in self._tasks.get(place, ())

    async def _follow(self, asked: ProbeTarget, question: _Question, state: ProbeState) -> None:
        kind, probe = question.kind, question.probe
        spread = crc32(f"{kind}/{asked.place}".encode()) / 2**32
        while self._is_current(asked.place) and not (kind is ProbeKind.LIVENESS and state.verdict is False):
            try:
                state = await self._ask(asked, question, state, spread)
            except Exception as error:  # noqa: BLE001 - a bug with one answer must not end the probe
                internal_error(error, f"{kind} probe of {asked.place}")
                await self._clock.sleep(probe.period_seconds)

    async def _ask(self, asked: ProbeTarget, question: _Question, state: ProbeState, spread: float) -> ProbeState:
        """The state after the next answer; a verdict that changes is published."""
        kind, probe = question.kind, question.probe
        now = self._clock.monotonic()
        await self._clock.sleep(max(next_due(probe, state, question.started, now, spread) - now, 0.0))
        now = self._clock.monotonic()
        answer = await run_probe(self._runtime, asked, probe)
        new = after(probe, state, answer.ok, now)
        if new.verdict not in (None, state.verdict) and self._is_current(asked.place):
            self._publish(Verdict(asked.place, question.started, kind, new.verdict, answer.message))
        return new


class _Question(msgspec.Struct, frozen=True):
    kind: ProbeKind
    probe: Probe
    started: float
