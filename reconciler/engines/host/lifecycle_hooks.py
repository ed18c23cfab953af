"""Lifecycle hooks: run inside a container, their end told (document 1, Container, lifecycle)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.decisions.transitions import HookName
from reconciler.engines.host.runtimes.protocol import ContainerId, Runtime
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Command

Told = Callable[[ContainerId, HookName, str], None]
"""Takes the place, the hook, and what went wrong ("" where nothing did)."""


class Hooks:
    """The hooks that run now. What they write goes to the logs of their container and nowhere else."""

    def __init__(self, runtime: Runtime, timing: Timing, told: Told) -> None:
        self._runtime = runtime
        self._timing = timing
        self._told = told
        self._tasks: dict[tuple[ContainerId, HookName], asyncio.Task[None]] = {}

    def run(self, place: ContainerId, hook: HookName, command: Command | None) -> None:
        """Begin to run a hook; nothing happens where it runs already."""
        if (place, hook) not in self._tasks:
            task = asyncio.create_task(self._run(place, hook, command))
            self._tasks[place, hook] = task
            task.add_done_callback(lambda _: self._tasks.pop((place, hook), None))

    def forget(self, place: ContainerId) -> None:
        """The container has ended, and its hooks with it."""
        for (at, _), task in list(self._tasks.items()):
            if at == place:
                task.cancel()

    def cancel(self, place: ContainerId) -> None:
        """The container's time is up: a preStop hook that runs still has failed, and ends with it."""
        task = self._tasks.get((place, "pre_stop"))
        if task is not None and not task.done():
            task.cancel()
            self._told(place, "pre_stop", _too_long(self._limit("pre_stop")))

    async def close(self) -> None:
        """Stop waiting for hooks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, place: ContainerId, hook: HookName, command: Command | None) -> None:
        limit = self._limit(hook)
        try:
            done = await self._runtime.exec(place, command.command if command else (), limit)
        except EngineError as error:
            self._told(place, hook, f"could not be run: {error}")
            return
        if done.output:
            self._written(place, hook, done.output)
        if done.timed_out:
            self._told(place, hook, _too_long(limit))
        else:
            self._told(place, hook, f"ended with {done.code}; its words are in the logs" if done.code else "")

    def _limit(self, hook: HookName) -> float:
        return self._timing.total * (self._timing.scale if hook == "pre_stop" else 1.0)

    def _written(self, place: ContainerId, hook: HookName, output: str) -> None:
        lines = "".join(f"{hook}: {line}\n" for line in output.splitlines())
        try:
            with self._runtime.output(place).open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError:
            return


def _too_long(limit: float) -> str:
    return f"did not end within {limit:g} s"
