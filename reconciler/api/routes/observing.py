"""What runs at the locations of this host: its logs, its replicas with what they use, and its drift."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.table import LINES, Operation
from reconciler.model.key import Key, Kind
from reconciler.times import parse_time

SECONDS = 300.0
"""Seconds that reading logs may take, unless it follows them."""
CHECK_SECONDS = 5.0
"""Seconds between two checks of the credential of a client that follows logs."""
_MOST_LINES = 10_000
_MOST_QUERY = 4096
_BLOCK = 65_536


async def read_logs(call: Call) -> Response:
    """Lines of logs, oldest first, and then new ones as they come if the client follows them."""
    from reconciler.api.log_process import LogRequest, encode_request
    from reconciler.engines.host.logs.segments import roots

    call.require("readLogs", Key(Kind.ORG, "", call.org))
    query = call.query("query")
    if not 0 < len(query) <= _MOST_QUERY:
        raise Problem(400, f"query is the logs to read, at most {_MOST_QUERY} characters")
    since, until = (_time(call, name) for name in ("since", "until"))
    limit, follow = call.count("lines", 100, _MOST_LINES), call.query("follow") == "true"
    if follow and until is not None:
        raise Problem(400, "follow shows new lines, and until excludes them: use one of them")
    request = LogRequest(
        call.api.settings,
        query,
        since,
        until,
        limit,
        call.query("location") or None,
        call.query("replica") or None,
        follow,
    )
    if not roots(call.api.settings.state):
        return Response(media_type=LINES)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(call.api.log_slot(call.caller.principal))
        running = await _start(encode_request(request))
        stack.push_async_callback(_end, running)
        assert running.stdout is not None
        if refusal := (await running.stdout.readline()).decode().strip():
            raise Problem(400, refusal)
        return _LogStream(call, running, stack.pop_all(), follow=follow)


def _time(call: Call, name: str) -> float | None:
    """A query parameter that is a time or an age, in seconds since the epoch."""
    from reconciler.settings import parse_duration

    if not (text := call.query(name)):
        return None
    with contextlib.suppress(ValueError):
        return call.api.clock.now() - parse_duration(text)
    try:
        return parse_time(text)
    except ValueError:
        raise Problem(400, f"{name} is a time such as 2026-01-31T12:00:00Z, or an age such as 30m") from None


async def _start(request: bytes) -> Process:
    """The process that reads the logs."""
    # -I and "/": nothing is imported from the working directory.
    words = (sys.executable, "-I", "-m", "reconciler.api.log_process")
    running = await asyncio.create_subprocess_exec(
        *words, cwd="/", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_BLOCK
    )
    assert running.stdin is not None
    running.stdin.write(request)
    running.stdin.close()
    return running


async def _end(running: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        running.kill()
    await running.wait()


class _LogStream(Response):
    """Sends the output of the process ``running`` until it or the client ends; then ``resources`` are closed."""

    media_type = LINES

    def __init__(self, call: Call, running: Process, resources: contextlib.AsyncExitStack, *, follow: bool) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._call = call
        self._running = running
        self._resources = resources
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with self._resources:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_lines(receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_lines(self, receive: Receive, send: Send) -> None:
        work: list[asyncio.Task[Any]] = [
            asyncio.create_task(each) for each in (_disconnected(receive), self._pass_on(send), self._expire())
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _pass_on(self, send: Send) -> None:
        assert self._running.stdout is not None
        while content := await self._running.stdout.read(_BLOCK):
            await send({"type": "http.response.body", "body": content, "more_body": True})

    async def _expire(self) -> None:
        """Return once the stream has to end: after its time, or when the credential is no longer good."""
        if not self._follow:
            await asyncio.sleep(SECONDS)
            return
        with contextlib.suppress(Problem):
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                self._call.act_as(self._call.api.authenticator.caller(self._call.request))
                self._call.require("readLogs", Key(Kind.ORG, "", self._call.org))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_replicas(call: Call) -> Response:
    """The replicas of a workload on this host, with the processor time since the last request, and their memory."""
    from reconciler.render.replicas import replica_document

    key = call.existing("view")
    if key.kind is not Kind.WORKLOAD:
        raise Problem(404, f"a {key.kind} has no replicas")
    location = call.query("location")
    rows = await asyncio.to_thread(call.api.replicas.read)
    mine = (each for each in rows if each.replica.key == key and location in ("", each.location))
    return call.respond({"kind": "list", "itemKind": "replica", "items": replica_document(mine)["replicas"]})


async def read_drift(call: Call) -> Response:
    """What differs at its location, as the last check of the daemon found it; only what the caller may view."""
    from reconciler.render.drift import drift_document

    checked, rows = call.reader.records.drifts.last_check()
    shown = [row for row in rows if call.may("view", Key.parse(row.key))]
    return call.respond({"kind": "list", "itemKind": "drift", **drift_document(checked, shown)})


OPERATIONS = (
    Operation(
        "GET", "/org/{org}/-log", read_logs, "Read the logs of workloads on this host.", "readLogs",
        {200: "The lines, one object each: time, gvc, workload, location, replica, container and line."},
        ("query", "since", "until", "lines", "location", "replica", "follow"), media=LINES,
    ),
    Operation("GET", "/org/{org}/gvc/{gvc}/{kind}/{name}/-replica", read_replicas,
              "List the replicas of a workload on this host, with what they use.", "view", parameters=("location",)),
    Operation("GET", "/org/{org}/-drift", read_drift, "List what differs at its location."),
)  # fmt: skip
