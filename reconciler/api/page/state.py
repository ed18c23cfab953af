"""What the pages of a server share: links that log in, and one reader of the records for all that are open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.api.page.sessions import PageLinks
from reconciler.api.rate_limits import Admission
from reconciler.clock import Clock
from reconciler.errors import RecordsError

if TYPE_CHECKING:
    from reconciler.planning.versions import ResourceHistory

POLL_SECONDS = 0.1
"""Seconds between two checks of the records while any page is open; one costs microseconds."""
BEAT_SECONDS = 15.0
"""Seconds without a change after which those that wait go on."""
MOST_PAGES, MOST_PAGES_OF_CALLER = 500, 50
"""Pages that are open at once, and those of one caller."""


class PageState:
    """The state of all pages; ``read_version`` reads what changes with each write of the daemon."""

    def __init__(self, read_version: Callable[[], int], clock: Clock) -> None:
        self.links = PageLinks(clock.monotonic)
        self.streams = Admission("follow the records by a page", MOST_PAGES, MOST_PAGES_OF_CALLER)
        self.recorded = RecordedFeed(read_version)
        self.histories: dict[tuple[str, str], ResourceHistory] = {}
        """The versions of resources that pages showed, by key and applied commit."""


class RecordedFeed:
    """Lets pages wait for the next write of the daemon; reads nothing while none waits."""

    def __init__(self, read_version: Callable[[], int]) -> None:
        self._read_version = read_version
        self._waiting: set[asyncio.Future[None]] = set()
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, version: int) -> int:
        """The version of the records once it is not ``version``; the same one after BEAT_SECONDS."""
        if (now := self._read_version()) != version:
            return now
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(version))
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                await changed
        except TimeoutError:
            return version
        finally:
            self._waiting.discard(changed)
        return self._read_version()

    async def _poll(self, version: int) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            # Records that cannot be read show that to the request that follows.
            before, version = version, -1
            with contextlib.suppress(RecordsError):
                version = self._read_version()
            if version != before:
                self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
