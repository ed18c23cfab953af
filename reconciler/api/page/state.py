"""What the pages of a server share: links that log in, and one reader of the records for all that are open."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.api.page.sessions import PageLinks
from reconciler.api.page.views import SharedViews
from reconciler.api.rate_limits import Admission
from reconciler.clock import Clock
from reconciler.errors import RecordsError

if TYPE_CHECKING:
    from reconciler.engines.reading import LogStream
    from reconciler.planning.versions import ResourceHistory

POLL_SECONDS = 0.02
"""Seconds between two checks of the records while any page is open; one costs microseconds."""
MOST_GATHER_SECONDS = 0.1
"""Seconds for which those that wait do so at most while one write follows the other, as in a run."""
REFRESH_CPU, MOST_SHARE = 0.0005, 0.05
"""CPU seconds that it costs to send a page what it shows, and the share of a core that all pages may take."""
QUIET_SECONDS, MOST_AT_ONCE = 1.0, 3
"""The least seconds between two events for a page, on average, and the most events that may follow each other."""
BEAT_SECONDS = 15.0
"""Seconds without a change after which those that wait go on."""
MOST_PAGES, MOST_PAGES_OF_CALLER = 500, 50
"""Pages that are open at once, and those of one caller."""
MOST_LOGS, MOST_LOGS_OF_CALLER = 24, 6
"""Pages that follow logs at once, each by a process, and those of one caller. Other readers of logs have their own."""
STREAMS_SECONDS = 10.0
"""Seconds for which a list of the streams of logs is used."""


class PageState:
    """The state of all pages; ``read_version`` reads what changes with each write of the daemon."""

    def __init__(
        self, read_version: Callable[[], int], list_streams: Callable[[], list[LogStream]], clock: Clock
    ) -> None:
        self.links = PageLinks(clock.monotonic)
        self.streams = Admission("follow the records by a page", MOST_PAGES, MOST_PAGES_OF_CALLER)
        self.logs = Admission("follow logs by a page", MOST_LOGS, MOST_LOGS_OF_CALLER)
        self.recorded = RecordedFeed(read_version)
        self.log_streams = KnownStreams(list_streams, clock.monotonic)
        self.views = SharedViews(clock.monotonic)
        self.histories: dict[tuple[str, str], ResourceHistory] = {}
        """The versions of resources that pages showed, by key and applied commit."""


class KnownStreams:
    """The streams of logs at all locations, listed anew after some seconds: a query is completed at each key."""

    def __init__(self, list_streams: Callable[[], list[LogStream]], monotonic: Callable[[], float]) -> None:
        self._list_streams = list_streams
        self._monotonic = monotonic
        self._streams: list[LogStream] = []
        self._until = -math.inf
        self._lock = asyncio.Lock()

    async def read(self) -> list[LogStream]:
        """The streams of a moment ago."""
        async with self._lock:
            if self._monotonic() >= self._until:
                self._streams = await asyncio.to_thread(self._list_streams)
                self._until = self._monotonic() + STREAMS_SECONDS
        return self._streams


class RecordedFeed:
    """Lets pages wait for the next write of the daemon; reads nothing while none waits."""

    def __init__(self, read_version: Callable[[], int]) -> None:
        self._read_version = read_version
        self._waiting: set[asyncio.Future[None]] = set()
        self._polling: asyncio.Task[None] | None = None

    def count_seconds(self, pages: int) -> float:
        """The seconds between two events for each of ``pages`` that are open, on average."""
        return max(QUIET_SECONDS, pages * REFRESH_CPU / MOST_SHARE)

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
        waited = 0.0
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            # Records that cannot be read show that to the request that follows.
            before, version = version, -1
            with contextlib.suppress(RecordsError):
                version = self._read_version()
            waited += POLL_SECONDS if waited or version != before else 0.0
            if waited and (version == before or waited >= MOST_GATHER_SECONDS):
                waited = 0.0
                self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
