"""Does the upkeep of a daemon in the background."""

from __future__ import annotations

import asyncio

from reconciler.daemon.allocator import FreedMemory
from reconciler.pipeline.runner import Runner
from reconciler.pipeline.upkeep import due_upkeep, run_upkeep


class Upkeep:
    """The upkeep of a daemon, one round at a time, in a thread of its own."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._memory = FreedMemory()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start what is due, unless a round is in progress."""
        if self._task is not None and not self._task.done():
            return
        due = list(due_upkeep(self._runner))
        if self._memory.is_worth_returning():
            due.append(self._memory.give_back)
        self._task = asyncio.create_task(asyncio.to_thread(run_upkeep, due)) if due else None

    async def finish(self) -> None:
        """Wait for the round in progress."""
        if self._task is not None:
            await self._task
