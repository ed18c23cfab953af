"""What keeps pages current: what each shows, whenever that changed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.forms import make_form_token
from reconciler.api.page.sharing import find_shared, read_shared_view
from reconciler.api.page.state import MOST_AT_ONCE
from reconciler.api.problems import Problem
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import EVENTS, Routes, make_page_operation
from reconciler.errors import ReconcilerError

_BEAT = b"event: beat\ndata: \n\n"
"""Where nothing comes for long, not even this, a page connects again: a lost connection may not say so."""
_RECORDED = b"event: recorded\ndata: \n\n"
"""The page asks for itself: for what is not shared, or no longer to be seen."""


async def follow_records(call: Call) -> Response:
    """The view of the page at ``view`` whenever it shows something else, for as long as the page is open."""
    resources = contextlib.AsyncExitStack()
    resources.enter_context(call.api.page.streams.admit(call.caller.principal))
    return PartStream(call, _stream_events(call), resources, lambda _: None, EVENTS)


class _FollowedView:
    """The view of an open page: its bytes go by the stream, since a request for each of many pages costs more."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._mark = b""

    async def read_event(self) -> bytes:
        """The event with what the page shows now; empty if that is what it shows already."""
        address = self._call.query("view")
        try:
            routes: Routes = self._call.request.scope["routes"]
            match = routes.find("GET", urlsplit(address).path)
            show_view = find_shared(match.operation)
            if show_view is None:
                return _RECORDED
            inner = _make_inner_call(self._call, address, match.parameters)
            view = await read_shared_view(show_view, inner)
        except (Problem, ReconcilerError, ValueError):
            return _RECORDED
        if view.mark == self._mark:
            return b""
        self._mark = view.mark
        token = make_form_token(self._call.request).encode()
        return b"event: view\n%s\n" % view.event.replace(view.token, token)


def _make_inner_call(call: Call, address: str, parameters: dict[str, str]) -> Call:
    """The request of the page at ``address`` for its view, in the session of ``call``."""
    path, query = urlsplit(address).path, urlsplit(address).query
    scope = {
        **call.request.scope,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "path_params": parameters,
        "headers": [*call.request.scope["headers"], (b"hx-request", b"true")],
    }
    return Call(Request(scope), call.api, call.caller)


async def _stream_events(call: Call) -> AsyncIterator[bytes]:
    state, view = call.api.page, _FollowedView(call)
    version = await state.recorded.wait(-1)
    # A page asks again after it was cut off, and so sees what it missed.
    yield b"retry: 1000\nevent: open\ndata: \n\n"
    allowed, since = float(MOST_AT_ONCE), time.monotonic()
    while True:
        before, version = version, await state.recorded.wait(version)
        if before == version:
            yield _BEAT
            continue
        if event := await view.read_event():
            yield event
        # Some events may follow each other, as the writes of a run do; then each page waits, the longer the more there
        # are, and sees at the end what came meanwhile.
        seconds, now = state.recorded.count_seconds(state.streams.count()), time.monotonic()
        allowed, since = min(float(MOST_AT_ONCE), allowed + (now - since) / seconds) - 1, now
        if allowed < 1:
            await asyncio.sleep((1 - allowed) * seconds * random.uniform(1, 1.25))  # not all pages at once


PAGES = (
    make_page_operation(
        "/ui/events", follow_records, "What an open page shows, whenever that changed.", parameters=("view",)
    )._replace(media=EVENTS),
)
