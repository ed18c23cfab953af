"""Watches: changes of resources as server-sent events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reconciler.api.call import Call
from reconciler.api.problems import Problem, problem_body
from reconciler.api.table import ANY, EVENTS, Handler, Operation
from reconciler.api.watching import Watcher, WatchScope, encode_event

CHECK = 5.0
"""Seconds between two checks of the credential of a client."""
BOOKMARK_CHECKS = 3
"""Checks between two bookmarks: without an event for so long, a client keeps an id that can be resumed from."""
_LONGEST = 86_400


async def watch_collection(call: Call) -> Response:
    """The changes of a collection; only what the caller may view."""
    kind = call.kind()
    gvc = call.request.path_params.get("gvc")
    return await _watch_resources(call, WatchScope(f"{kind}/" if gvc is None else f"{kind}/{gvc}/"))


async def watch_resource(call: Call) -> Response:
    """The changes of one resource."""
    key = call.key()
    call.require("view", key)
    return await _watch_resources(call, WatchScope(str(key), key))


async def _watch_resources(call: Call, scope: WatchScope) -> Response:
    records = call.reader.records
    start = call.request.headers.get("last-event-id") or call.query("after")
    if start and not (start.isdecimal() and len(start) < 19):
        raise Problem(400, f"the id of an event is a number, not {start[:20]!r}")
    seconds = call.query("timeoutSeconds")
    if seconds and not (seconds.isdecimal() and int(seconds[:9]) <= _LONGEST):
        raise Problem(400, f"timeoutSeconds is a number from 0 to {_LONGEST}, not {seconds[:20]!r}")
    visible = call.visibility(call.kind())
    watcher = Watcher(call.caller, scope, visible, int(start) if start else records.changes.newest())
    missed = await call.api.changes.open(watcher)
    return _EventStream(call, watcher, missed, float(seconds) if seconds else math.inf)


class _EventStream(Response):
    """Sends events as they come, until the client goes, the watch ends, or ``seconds`` have passed."""

    media_type = EVENTS

    def __init__(self, call: Call, watcher: Watcher, missed: list[bytes], seconds: float) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._call = call
        self._watcher = watcher
        self._missed = missed
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        gone = asyncio.ensure_future(_await_disconnect(receive))
        gone.add_done_callback(lambda _: self._watcher.end(None))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async for content in self._parts():
                    await send({"type": "http.response.body", "body": content, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._call.api.changes.leave(self._watcher)
            gone.cancel()

    async def _parts(self) -> AsyncIterator[bytes]:
        """The events that were missed, then what comes, with a bookmark now and then."""
        watcher, now = self._watcher, asyncio.get_running_loop().time
        end, check, checks = now() + self._seconds, now() + CHECK, 0
        yield b"".join([*self._missed, self._bookmark()])
        self._missed.clear()
        while not watcher.ended and now() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(check, end)):
                    await watcher.news.wait()
            content = watcher.take()
            if now() >= check:
                check, checks = now() + CHECK, checks + 1
                await self._check_credential()
                content += self._bookmark() if checks % BOOKMARK_CHECKS == 0 else b""
            if content:
                yield content
        if content := watcher.take():
            yield content
        if watcher.problem is not None:
            yield b"event: problem\ndata: %s\n\n" % problem_body(watcher.problem, self._call.request_id)

    def _bookmark(self) -> bytes:
        position = max(self._call.api.changes.position, self._watcher.after)
        return encode_event(position, "bookmark", {"version": str(position)})

    async def _check_credential(self) -> None:
        """End the watch of a caller whose key was revoked, or whose session is over."""
        try:
            await self._call.api.authenticator.caller(self._call.request)
        except Problem as problem:
            self._watcher.end(problem)


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _make_watch_operation(path: str, watch: Handler, summary: str, permission: str = ANY) -> Operation:
    answers = {200: "Events.", 410: "The events since then are no longer known."}
    return Operation("GET", path, watch, summary, permission, answers, ("after", "timeoutSeconds"), media=EVENTS)


OPERATIONS = (
    _make_watch_operation("/org/{org}/{kind}/-watch", watch_collection, "Watch the resources of a kind."),
    _make_watch_operation("/org/{org}/gvc/{gvc}/{kind}/-watch", watch_collection, "Watch the resources of a GVC."),
    _make_watch_operation("/org/{org}/{kind}/{name}/-watch", watch_resource, "Watch a resource.", "view"),
    _make_watch_operation(
        "/org/{org}/gvc/{gvc}/{kind}/{name}/-watch", watch_resource, "Watch a resource of a GVC.", "view"
    ),
)
