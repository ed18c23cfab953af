"""Views that were made a moment ago, for all pages that ask for them again."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

_AGE = re.compile(rb"(<time [^>]*>)[^<]*")
FRESH_SECONDS = 1.0
"""Seconds for which a view is sent to others: it has more than the records, such as what replicas use."""


class ViewStamp(NamedTuple):
    """What a view depends on beside its address and its reader: the records, and whether the daemon answers."""

    version: int
    is_alive: bool


class SharedView(NamedTuple):
    """A view as it was made for the session whose forms have ``token``.

    ``mark`` changes with what it shows, and neither with the session nor with the time. ``event`` is the data
    of a server-sent event with the view.
    """

    content: bytes
    token: bytes
    mark: bytes
    event: bytes


def mark_view(content: bytes, token: bytes) -> SharedView:
    """The view ``content``, which was made for the session whose forms have ``token``."""
    plain = _AGE.sub(rb"\1", content.replace(token, b""))
    event = b"".join(b"data: %s\n" % line for line in content.splitlines())
    return SharedView(content, token, hashlib.blake2b(plain, digest_size=16).digest(), event)


class _MadeView(NamedTuple):
    stamp: ViewStamp
    at: float
    task: asyncio.Task[SharedView]


class SharedViews:
    """The views that are fresh."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._views: dict[object, _MadeView] = {}

    async def read(self, name: object, stamp: ViewStamp, make: Callable[[], Awaitable[SharedView]]) -> SharedView:
        """The view ``name``, from ``make`` unless it is fresh. Raises what ``make`` raises."""
        now = self._monotonic()
        self._views = {key: view for key, view in self._views.items() if now < view.at + FRESH_SECONDS}
        view = self._views.get(name)
        if view is None or view.stamp != stamp:
            task = asyncio.ensure_future(make())
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # all may have left
            view = self._views[name] = _MadeView(stamp, now, task)
        # It goes on for the others if one of those who wait leaves.
        return await asyncio.shield(view.task)
