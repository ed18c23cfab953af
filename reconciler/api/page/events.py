"""What keeps pages current: an event for each when the records changed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.state import MOST_AT_ONCE, PageState
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import EVENTS, make_page_operation

_BEAT = b": alive\n\n"


async def follow_records(call: Call) -> Response:
    """An event whenever the records changed, for as long as the page is open."""
    resources = contextlib.AsyncExitStack()
    resources.enter_context(call.api.page.streams.admit(call.caller.principal))
    return PartStream(call, _stream_events(call.api.page), resources, lambda _: None, EVENTS)


async def _stream_events(state: PageState) -> AsyncIterator[bytes]:
    version = await state.recorded.wait(-1)
    # A page asks again after it was cut off, and so sees what it missed.
    yield b"retry: 1000\nevent: open\ndata: \n\n"
    allowed, since = float(MOST_AT_ONCE), time.monotonic()
    while True:
        before, version = version, await state.recorded.wait(version)
        if before == version:
            yield _BEAT
            continue
        yield b"event: recorded\ndata: \n\n"
        # Some events may follow each other, as the writes of a run do; then each page waits, the longer the more there
        # are, and sees at the end what came meanwhile.
        seconds, now = state.recorded.count_seconds(state.streams.count()), time.monotonic()
        allowed, since = min(float(MOST_AT_ONCE), allowed + (now - since) / seconds) - 1, now
        if allowed < 1:
            await asyncio.sleep((1 - allowed) * seconds * random.uniform(1, 1.25))  # not all pages at once


PAGES = (
    make_page_operation("/ui/events", follow_records, "Whether the records changed, for pages that are open.")._replace(
        media=EVENTS
    ),
)
