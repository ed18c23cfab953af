"""Views that were made a moment ago, for all pages that ask for them again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

FRESH_SECONDS = 1.0
"""Seconds for which a view is sent to others: it has more than the records, such as what replicas use."""


class ViewStamp(NamedTuple):
    """What a view depends on beside its address and its reader: the records, and whether the daemon answers."""

    version: int
    is_alive: bool


class _MadeView(NamedTuple):
    stamp: ViewStamp
    at: float
    task: asyncio.Task[tuple[bytes, bytes]]


class SharedViews:
    """The views that are fresh, each with the form token that it was made with."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._views: dict[object, _MadeView] = {}

    async def read(
        self, name: object, stamp: ViewStamp, make: Callable[[], Awaitable[tuple[bytes, bytes]]]
    ) -> tuple[bytes, bytes]:
        """The view ``name`` and its token, from ``make`` unless it is fresh. Raises what ``make`` raises."""
        now = self._monotonic()
        self._views = {key: view for key, view in self._views.items() if now < view.at + FRESH_SECONDS}
        view = self._views.get(name)
        if view is None or view.stamp != stamp:
            task = asyncio.ensure_future(make())
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # all may have left
            view = self._views[name] = _MadeView(stamp, now, task)
        # It goes on for the others if one of those who wait leaves.
        return await asyncio.shield(view.task)
