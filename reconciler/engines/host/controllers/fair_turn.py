"""Keeps many tasks that become ready together from blocking the event loop: one continues in each iteration."""

from __future__ import annotations

import asyncio
from collections import deque

from reconciler.clock import Clock


class FairTurn:
    """Shared by all workload controllers of a location. A single task never waits."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def acquire(self) -> None:
        """Return when no other task has continued in this iteration of the loop; first come, first served."""
        loop = asyncio.get_running_loop()
        try:
            if self._taken:
                mine = loop.create_future()
                self._waiting.append(mine)
                await mine
        finally:
            self._taken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._taken = False


async def event_or_time(event: asyncio.Event, clock: Clock, moment: float | None) -> None:
    """Return when ``event`` is set, or at ``moment`` of the monotonic clock (None: never)."""
    if event.is_set():
        return
    waits: list[asyncio.Task[object]] = [asyncio.create_task(event.wait())]
    if moment is not None:
        waits.append(asyncio.create_task(clock.sleep(moment - clock.monotonic())))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
