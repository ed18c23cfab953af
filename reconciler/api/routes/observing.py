"""What runs at the locations of this host: its logs, its replicas with what they use, and its drift."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import LARGEST, Call
from reconciler.api.problems import Problem
from reconciler.api.rate_limits import Admission
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import LINES, Operation
from reconciler.model.key import Key, Kind
from reconciler.times import parse_past

if TYPE_CHECKING:
    from reconciler.api.log_process import LogRequest

_MOST_LINES = 10_000
_MOST_SECONDS = 30.0
"""Seconds that a page waits for lines."""
_MOST_QUERY = 4096
_BLOCK = 65_536


class FollowedLogs(NamedTuple):
    """Lines as they come, an object in JSON each; ``check`` raises Problem once the caller may no longer read them."""

    blocks: AsyncIterator[bytes]
    check: Callable[[Call], None]


async def read_logs(call: Call) -> Response:
    """Lines of logs, oldest first, and then new ones as they come if the client follows them."""
    workloads = await call.apart(lambda: list_readable_workloads(call))
    follow = call.flag("follow") is True
    request = _parse_log_request(
        call, call.query("query"), call.count("lines", 100, _MOST_LINES), workloads, follow=follow
    )
    async with contextlib.AsyncExitStack() as stack:
        running = await _open_logs(call, request, stack, call.api.streams)
        check = partial(_check_readable, before=workloads) if follow else None
        return PartStream(call, _read_blocks(running), stack.pop_all(), check)


async def collect_lines(call: Call, limit: int, query: str = "") -> list[dict[str, Any]]:
    """The newest lines, at most ``limit``, that ``query`` or that of the request selects, oldest first.

    Raises Problem.
    """
    workloads = await call.apart(lambda: list_readable_workloads(call))
    request = _parse_log_request(call, query or call.query("query"), limit, workloads, follow=False)
    try:
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(_MOST_SECONDS):
            running = await _open_logs(call, request, stack, call.api.streams)
            content = b"".join([block async for block in _read_blocks(running)])
    except TimeoutError:
        message = f"the lines were not read within {_MOST_SECONDS:g} s; name a workload, fewer lines or a shorter time"
        raise Problem(503, message) from None
    return [msgspec.json.decode(line) for line in content.splitlines()]


async def follow_lines(
    call: Call, since: float, limit: int, stack: contextlib.AsyncExitStack, admission: Admission
) -> FollowedLogs:
    """The lines of the query from ``since`` on, in seconds since the epoch, and then new ones until ``stack`` ends.

    Of those that are there already, the newest come, at most ``limit``. Raises Problem.
    """
    workloads = await call.apart(lambda: list_readable_workloads(call))
    request = _parse_log_request(call, call.query("query"), limit, workloads, follow=True)
    running = await _open_logs(call, msgspec.structs.replace(request, since=since), stack, admission)
    return FollowedLogs(_read_blocks(running), partial(_check_readable, before=workloads))


def _parse_log_request(
    call: Call, query: str, limit: int, workloads: frozenset[str] | None, *, follow: bool
) -> LogRequest:
    """What the request asks for with ``query``, of ``workloads`` (None: of all). Raises Problem 400."""
    from reconciler.api.log_process import LogRequest

    if not 0 < len(query) <= _MOST_QUERY:
        raise Problem(400, f"query is the logs to read, at most {_MOST_QUERY} characters")
    since, until = (_parse_time_parameter(call, name) for name in ("since", "until"))
    if follow and until is not None:
        raise Problem(400, "follow shows new lines, and until excludes them: use one of them")
    return LogRequest(
        call.api.settings,
        query,
        since,
        until,
        limit,
        call.query("location") or None,
        call.query("replica") or None,
        follow,
        workloads,
    )


async def _open_logs(
    call: Call, request: LogRequest, stack: contextlib.AsyncExitStack, admission: Admission
) -> Process:
    """The process that reads the logs, which ends with ``stack``. Raises Problem."""
    from reconciler.api.log_process import encode_request

    stack.enter_context(admission.admit(call.caller.principal))
    running = await _start_log_process(encode_request(request))
    stack.push_async_callback(_stop_log_process, running)
    assert running.stdout is not None
    if refusal := (await running.stdout.readline()).decode().strip():
        status, _, message = refusal.partition(" ")
        raise Problem(int(status), message)
    return running


def list_readable_workloads(call: Call) -> frozenset[str] | None:
    """The keys of the workloads whose logs the caller may read; None: all. Raises Problem 403 if there are none."""
    org = Key(Kind.ORG, "", call.org)
    # The setting `readers` includes the logs, which the group `viewers` may not read by itself.
    if call.caller.reader or call.may("readLogs", org):
        return None
    visible = call.reader.access().visibility(call.caller, Kind.WORKLOAD, "readLogs")
    if visible.everything:
        return None
    prefix, reader = f"{Kind.WORKLOAD}/", call.reader
    names = {key for key in visible.keys if key.startswith(prefix)}
    for grant in visible.grants:
        names.update(reader.selections.keys_after(reader.records, grant, prefix, "", LARGEST))
    if not names:
        raise Problem(403, f"{call.caller.principal} has no permission `readLogs` on {org}, or on a workload")
    return frozenset(names)


def _check_readable(call: Call, before: frozenset[str] | None) -> None:
    """Raise Problem 403 once the caller may no longer read all that it could ``before``."""
    now = list_readable_workloads(call)
    if now is not None and (before is None or not before <= now):
        raise Problem(403, f"{call.caller.principal} may no longer read all of these logs")


def _parse_time_parameter(call: Call, name: str) -> float | None:
    """A query parameter that is a time or an age, in seconds since the epoch."""
    if not (text := call.query(name)):
        return None
    try:
        return parse_past(text, call.api.clock.now())
    except ValueError:
        raise Problem(400, f"{name} is a time such as 2026-01-31T12:00:00Z, or an age such as 30m") from None


async def _start_log_process(request: bytes) -> Process:
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


async def _stop_log_process(running: Process) -> None:
    """End the process, unless it has written all: then it ends by itself, and a signal would race with its end."""
    assert running.stdout is not None
    if not running.stdout.at_eof():
        with contextlib.suppress(ProcessLookupError):
            running.kill()
    await running.wait()


async def _read_blocks(running: Process) -> AsyncIterator[bytes]:
    assert running.stdout is not None
    while content := await running.stdout.read(_BLOCK):
        yield content


async def read_replicas(call: Call) -> Response:
    """The replicas of a workload on this host, with the processor time since the last request, and their memory."""
    from reconciler.render.replicas import replica_document

    key = call.existing("view")
    if key.kind is not Kind.WORKLOAD:
        raise Problem(404, f"a {key.kind} has no replicas")
    location = call.query("location")
    rows = await asyncio.to_thread(call.api.replicas.read)
    mine = (row for row in rows if row.key == key and location in ("", row.location))
    return call.respond({"kind": "list", "itemKind": "replica", "items": list(map(replica_document, mine))})


async def read_drift(call: Call) -> Response:
    """What differs at its location, as the last check of the daemon found it; only what the caller may view."""
    from reconciler.render.drift import drift_document

    def read() -> Response:
        checked, rows = call.reader.records.drifts.last_check()
        shown = [row for row in rows if call.may("view", Key.parse(row.key))]
        return call.respond({"kind": "list", "itemKind": "drift", **drift_document(checked, shown)})

    return await call.apart(read)


OPERATIONS = (
    Operation(
        "GET",
        "/org/{org}/-log",
        read_logs,
        "Read the logs of workloads on this host.",
        "readLogs",
        {200: "The lines, one object each: time, gvc, workload, location, replica, container and line."},
        ("query", "since", "until", "lines", "location", "replica", "follow"),
        media=LINES,
    ),
    Operation(
        "GET",
        "/org/{org}/gvc/{gvc}/{kind}/{name}/-replica",
        read_replicas,
        "List the replicas of a workload on this host, with what they use.",
        "view",
        parameters=("location",),
    ),
    Operation("GET", "/org/{org}/-drift", read_drift, "List what differs at its location."),
)
