"""A fetch during a run: a newer revision that it finds pre-empts the run."""

from __future__ import annotations

import asyncio

from reconciler.bugs import contained
from reconciler.errors import SourceError
from reconciler.logs import log
from reconciler.source.source import Source


class BackgroundFetch:
    """Runs at most one fetch at a time. Two fetches into one mirror conflict, so a run first waits for the fetch."""

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
            with contained(f"fetch {source.name}"):
                await asyncio.to_thread(source.refresh)
        except SourceError as error:
            log().debug("fetch", source=source.name, message=str(error))
        finally:
            self._task = None
