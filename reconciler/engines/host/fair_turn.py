"""Keeps many who become ready together from holding up the event loop: each goes on in a turn of its own."""

from __future__ import annotations

import asyncio
from collections import deque


class FairTurn:
    """Shared by all keepers of a location. Whoever is alone never waits."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def acquire(self) -> None:
        """Return when nobody else has gone on in this turn of the loop; first come, first served."""
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
