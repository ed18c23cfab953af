"""Polls of remote sources: less and less often while one does not answer, and beside a run of another revision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.errors import SourceError
from reconciler.logs import log
from reconciler.source.source import Source


class _Outage(msgspec.Struct, frozen=True):
    tries: int = 0
    until: float = 0.0


class SourceBackoff:
    """The backoff of each source's polls, until the first answer. A requested run does not wait for it.

    ``now`` returns monotonic seconds; no backoff is longer than ``cap`` seconds.
    """

    def __init__(self, now: Callable[[], float], cap: float) -> None:
        self._now = now
        self._cap = cap
        self._outages: dict[str, _Outage] = {}

    def is_backing_off(self, name: str) -> bool:
        """Whether it is too soon to poll the source again."""
        outage = self._outages.get(name)
        return outage is not None and self._now() < outage.until

    def record_failure(self, name: str, interval: float) -> None:
        """Record a poll without an answer; the backoff doubles each time, from ``interval`` seconds."""
        tries = self._outages[name].tries if name in self._outages else 0
        # Half an interval less: the poll after the backoff finds it over, however late the backoff began.
        until = self._now() + min(self._cap, interval * 2.0 ** min(tries, 30)) - interval / 2
        self._outages[name] = _Outage(tries + 1, until)

    def record_answer(self, name: str) -> None:
        """Record an answer of the source."""
        self._outages.pop(name, None)


class BackgroundFetch:
    """Fetches during a run, one at a time: a newer revision that is found pre-empts the run.

    Two fetches into one mirror conflict, so a run first waits for the fetch.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, source: Source) -> None:
        """Fetch ``source`` unless a fetch is under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._fetch(source))

    async def wait(self) -> None:
        """Return when no fetch is under way."""
        if self._task is not None:
            await self._task

    async def _fetch(self, source: Source) -> None:
        try:
            with contain_bugs(f"fetch {source.name}"):
                await asyncio.to_thread(source.refresh)
        except SourceError as error:
            log().debug("fetch", source=source.name, message=str(error))
        finally:
            self._task = None
