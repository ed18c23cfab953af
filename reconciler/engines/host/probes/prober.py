"""Probes the containers of a location, each on its own schedule, and reports changed verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from zlib import crc32

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.engines.host.decisions.replica import ReplicaContainer
from reconciler.engines.host.probes.checks import ExecRuntime, ProbeTarget, explain_failure, run_probe
from reconciler.engines.host.probes.state import (
    ProbeKind,
    ProbeState,
    Verdict,
    apply_result,
    make_initial_state,
    next_due,
)
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.kinds.workload import Probe
from reconciler.tasks import cancel_and_wait

OnVerdict = Callable[[Verdict], None]
"""Called in the event loop when the verdict on a container changes."""


class Prober:
    """Runs one task for each probe of each watched container."""

    def __init__(self, runtime: ExecRuntime, clock: Clock, on_verdict: OnVerdict) -> None:
        self._runtime = runtime
        self._clock = clock
        self._publish = on_verdict
        self._tasks: dict[ContainerId, list[asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def watch(
        self, container_id: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: ReplicaContainer
    ) -> None:
        """Start probing a running container, in place of its earlier probes.

        ``seen`` supplies the start, and with ``ready`` the last verdict, which holds until the probe has failed or
        succeeded often enough. A changed verdict is reported. For a container that is not ready, the first bad verdict
        since its start is reported too, so that the cause is known. A failed liveness probe is not repeated before the
        next start. Must be called in the event loop.
        """
        self.forget(container_id)
        asked = ProbeTarget(container_id, container, dict(ports))
        probes = (
            (ProbeKind.READINESS, container.readiness, seen.ready),
            (ProbeKind.LIVENESS, container.liveness, True),
        )
        self._tasks[container_id] = [
            asyncio.create_task(
                self._follow(asked, _Question(kind, probe, seen.started), make_initial_state(kind, good)),
                name=f"{kind} probe of {container_id}",
            )
            for kind, probe, good in probes
            if probe is not None
        ]

    def forget(self, container_id: ContainerId) -> None:
        """Stop probing a container, if it is probed, and report nothing about it afterwards."""
        for task in self._tasks.pop(container_id, ()):
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop probing; returns when no probe runs, or after a bounded time."""
        for task in list(self._tasks):
            self.forget(task)
        await cancel_and_wait(self._ending, "probes")

    def _is_current(self, container_id: ContainerId) -> bool:
        """Whether the calling task still probes ``container_id``; results for an earlier start are ignored."""
        return asyncio.current_task() in self._tasks.get(container_id, ())

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
        """The state after the next result; a changed verdict is reported."""
        probe = question.probe
        now = self._clock.monotonic()
        await self._clock.sleep(max(next_due(probe, state, question.started, now, spread) - now, 0.0))
        now = self._clock.monotonic()
        answer = await run_probe(self._runtime, asked, probe)
        new = apply_result(probe, state, answer.ok, now)
        if new.verdict is False and not answer.ok:
            message = await explain_failure(self._runtime, asked, probe, answer.message)
            # Programs listen late: the ports of one that does not answer are named again when they change.
            if state.verdict is not False or question.is_news(message, answer.message):
                self._report(asked, question, ok=False, message=message)
        elif new.verdict not in (None, state.verdict):
            self._report(asked, question, ok=True, message="")
        return new

    def _report(self, asked: ProbeTarget, question: _Question, *, ok: bool, message: str) -> None:
        if self._is_current(asked.place):
            question.note(message)
            self._publish(Verdict(asked.place, question.started, question.kind, ok, message))


class _Question(msgspec.Struct):
    """A probe of a container that started at ``started``, with the last ``message`` that was reported."""

    kind: ProbeKind
    probe: Probe
    started: float
    message: str = ""

    def note(self, message: str) -> None:
        """Remember the ``message`` that is reported now."""
        self.message = message

    def is_news(self, message: str, plain: str) -> bool:
        """Whether ``message`` has more than the ``plain`` one, and was not reported last."""
        return message not in (plain, self.message)
