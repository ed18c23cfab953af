"""What keeps pages current: an event for each when the records changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.state import RecordedFeed
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import EVENTS, make_page_operation

QUIET_SECONDS = 1.0
"""The least seconds between two events for a page: it asks for itself again."""
_BEAT = b": alive\n\n"


async def follow_records(call: Call) -> Response:
    """An event whenever the records changed, for as long as the page is open."""
    resources = contextlib.AsyncExitStack()
    resources.enter_context(call.api.page.streams.admit(call.caller.principal))
    return PartStream(call, _stream_events(call.api.page.recorded), resources, lambda _: None, EVENTS)


async def _stream_events(feed: RecordedFeed) -> AsyncIterator[bytes]:
    version = await feed.wait(-1)
    # A page asks again after it was cut off, and so sees what it missed.
    yield b"retry: 1000\nevent: open\ndata: \n\n"
    while True:
        before, version = version, await feed.wait(version)
        if before == version:
            yield _BEAT
            continue
        yield b"event: recorded\ndata: \n\n"
        await asyncio.sleep(QUIET_SECONDS)


PAGES = (
    make_page_operation("/ui/events", follow_records, "Whether the records changed, for pages that are open.")._replace(
        media=EVENTS
    ),
)
