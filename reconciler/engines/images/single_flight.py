"""Shares one piece of work between all concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from reconciler.engines.workload.image_reference import ImageError
from reconciler.tasks import cancel_and_wait

V = TypeVar("V")


class SingleFlight(Generic[V]):
    """Runs work at most once at a time for each key; ``name`` is for the log.

    Work continues while any caller waits for it, and is cancelled with the last one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[Hashable, asyncio.Task[V]] = {}
        self._waiting: dict[asyncio.Task[V], int] = {}

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the work for ``key``, which is begun unless it is under way. Raises what the work raises."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work(), name=self._name)
            self._waiting[task] = 0
            task.add_done_callback(lambda done: self._end(key, done))
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and current is not None and not current.cancelling():
                raise ImageError(f"{self._name} was stopped") from None
            raise
        finally:
            self._leave(key, task)

    async def close(self) -> None:
        """Cancel all work."""
        await cancel_and_wait(list(self._waiting), self._name)

    def _leave(self, key: Hashable, task: asyncio.Task[V]) -> None:
        if task not in self._waiting:
            return
        self._waiting[task] -= 1
        if self._waiting[task] == 0:
            # The next caller starts new work, and does not wait for work that is being cancelled.
            self._forget(key, task)
            task.cancel()

    def _end(self, key: Hashable, task: asyncio.Task[V]) -> None:
        self._forget(key, task)
        del self._waiting[task]
        if not task.cancelled():
            task.exception()

    def _forget(self, key: Hashable, task: asyncio.Task[V]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
