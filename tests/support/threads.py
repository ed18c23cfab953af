"""Executors for the event loop of a test: work for threads is done at once, or never, as when the process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(ThreadPoolExecutor):
    """Does work for threads at once: no time passes meanwhile."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The result of ``fn``, which has ended already."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


class StepBudget:
    """The rest of a daemon's life: so many ``steps`` (requests, work for threads) are done, and perhaps one more.

    ``over`` is set at the death.
    """

    def __init__(self, steps: int, *, last_arrives: bool) -> None:
        self.steps = steps
        self.over = asyncio.Event()
        self._last_arrives = last_arrives

    @property
    def ended(self) -> bool:
        """Whether the daemon is dead."""
        return self.steps < 0

    def take(self) -> bool:
        """Whether one more step is done, with or without a daemon that learns of it."""
        self.steps -= 1
        if self.steps >= 0:
            return True
        self.over.set()
        return self.steps == -1 and self._last_arrives


class Mortal(InlineExecutor):
    """Does work for threads at once as long as ``life`` lasts, and then never."""

    def __init__(self, life: StepBudget) -> None:
        super().__init__()
        self._life = life

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The result of ``fn``, as long as anybody lives to see it."""
        done = super().submit(fn, *args, **kwargs) if self._life.take() else Future[T]()
        return Future() if self._life.ended else done


async def live(life: StepBudget, work: Callable[[], asyncio.Future[None]]) -> bool:
    """Do ``work`` until it ends or ``life`` does; whether that was by death. No task of it goes on."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Mortal(life))
    task = asyncio.ensure_future(work())
    over = asyncio.ensure_future(life.over.wait())
    await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
    died = not task.done()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    loop.set_default_executor(InlineExecutor())
    if not died:
        task.result()
    return died
