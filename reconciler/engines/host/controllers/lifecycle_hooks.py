"""Runs lifecycle hooks inside containers and reports their results (docs/platform/workload.md#lifecycle-hooks)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.decisions.transitions import HookName
from reconciler.engines.host.runtimes.protocol import ContainerId, Runtime
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Command
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait

HOOKS: Mapping[HookName, tuple[str, Reason]] = {
    "post_start": ("postStart", Reason.POST_START_FAILED),
    "pre_stop": ("preStop", Reason.PRE_STOP_FAILED),
}
"""For each hook, its name in manifests and the reason of the event for its failure."""

OnHookEnd = Callable[[ContainerId, float, HookName, str], None]
"""Takes the container, its start, the hook, and the error ("" if the hook succeeded)."""


class Hooks:
    """The running hooks. Their output goes only to the logs of their container."""

    def __init__(self, runtime: Runtime, timing: Timing, on_end: OnHookEnd) -> None:
        self._runtime = runtime
        self._timing = timing
        self._on_end = on_end
        self._running: dict[tuple[ContainerId, HookName], asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def run(
        self,
        container_id: ContainerId,
        started: float,
        hook: HookName,
        command: Command | None,
        total: int | None = None,
    ) -> None:
        """Start a hook of the container that started at ``started``; do nothing if the hook already runs.

        ``total`` is how many seconds the termination lasts, None for as long as by default. Without ``command`` it is
        the platform's preStop hook: that fails if the container cannot run it. Otherwise nothing happens, since time
        alone ends it.
        """
        if (container_id, hook) not in self._running:
            limit = self._limit(hook, total)
            task = asyncio.create_task(
                self._run(container_id, started, hook, command, limit), name=f"{hook} {container_id}"
            )
            self._running[container_id, hook] = task
            self._tasks.add(task)
            task.add_done_callback(lambda it: self._on_done(container_id, hook, it))

    def forget(self, container_id: ContainerId) -> None:
        """Stop the hooks of a container that has ended."""
        for at, hook in list(self._running):
            if at == container_id:
                self._running.pop((at, hook)).cancel()

    def cancel(self, container_id: ContainerId, started: float, total: int | None = None) -> None:
        """Fail and stop a preStop hook that still runs at the end of its container's grace period."""
        task = self._running.get((container_id, "pre_stop"))
        if task is not None and not task.done():
            task.cancel()
            self._on_end(container_id, started, "pre_stop", _too_long(self._limit("pre_stop", total)))

    async def close(self) -> None:
        """Stop waiting for hooks."""
        await cancel_and_wait(self._tasks, "lifecycle hooks")

    def _on_done(self, container_id: ContainerId, hook: HookName, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._running.get((container_id, hook)) is task:
            del self._running[container_id, hook]

    async def _run(
        self, container_id: ContainerId, started: float, hook: HookName, command: Command | None, limit: float
    ) -> None:
        if command is None:
            await self._try_sleep(container_id, started)
            return
        try:
            done = await self._runtime.exec(container_id, command.command, limit)
        except EngineError as error:
            self._on_end(container_id, started, hook, f"could not be run: {error}")
            return
        if done.output:
            lines = "".join(f"{hook}: {line}\n" for line in done.output.splitlines())
            self._runtime.append_output(container_id, lines)
        if done.timed_out:
            self._on_end(container_id, started, hook, _too_long(limit))
        else:
            self._on_end(
                container_id, started, hook, f"ended with {done.code}; its output is in the logs" if done.code else ""
            )

    async def _try_sleep(self, container_id: ContainerId, started: float) -> None:
        """Fail the default hook if its program is missing; if that is unknown, the container has the full time."""
        with suppress(EngineError):
            if not await self._runtime.can_sleep(container_id):
                self._on_end(container_id, started, "pre_stop", "the image lacks sleep")

    def _limit(self, hook: HookName, total: int | None) -> float:
        return self._timing.with_total(total).total * self._timing.scale if hook == "pre_stop" else self._timing.total


def _too_long(limit: float) -> str:
    return f"did not end within {limit:g} s"
