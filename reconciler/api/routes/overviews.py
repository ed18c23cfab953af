"""Overviews for operators: what commands such as `reconciler get` show, as JSON and as the text that they print.

They contain all resources, so that the caller needs the permission to view everything. Each operation imports what it
shows with: megabytes that a server at rest does without.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.routes.streams import Stream
from reconciler.api.table import LINES, OVERVIEW, TEXT, YAML, Operation
from reconciler.model.key import KINDS, Key, Kind
from reconciler.printable import printable, printable_lines
from reconciler.queries.existence import check_gvc, did_you_mean, source_of

if TYPE_CHECKING:
    from reconciler.queries.history import EventReader
    from reconciler.records.tables.events import Event

_MOST_EVENTS, _MOST_RUNS = 100_000, 10_000
_POLL_SECONDS = 0.5
_MEASURE_SECONDS = 0.5
"""Seconds in which the processor time of replicas is measured."""
CHUNK = 65_536
"""Characters of an overview that are made before some are sent, so that it takes no more memory than the client reads.
"""
_Result = TypeVar("_Result")


async def read_status(call: Call) -> Response:
    """The recorded resources, with the status of each and of the sources."""
    from reconciler.queries.resources import find_resources, list_sources
    from reconciler.render.resources import resource_table, resources_json, resources_yaml

    require_everything(call)
    kind, gvc, name = call.query("kind"), call.query("gvc") or None, call.query("name") or None
    if kind and kind not in KINDS:
        raise Problem(404, f"there is no kind {kind[:60]!r}{did_you_mean(kind, KINDS)}")
    media, settings = call.accepted(JSON, TEXT, YAML), call.api.settings

    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(call.api.overviews.admit(call.caller.principal))
        reader = stack.enter_context(contextlib.closing(call.api.new_reader()))
        stack.enter_context(reader.snapshot())
        # The thread ends before what it reads from is closed.
        thread = stack.enter_context(ThreadPoolExecutor(1, "overview"))

        def begin() -> Iterator[str]:
            found = find_resources(settings, reader.records, KINDS[kind] if kind else None, gvc, name)
            if media == TEXT:
                return iter((shown(resource_table(found, colour=False)),))
            sources = list_sources(settings, reader.records)
            return resources_json(found, sources) if media == JSON else resources_yaml(found, sources)

        parts = await asyncio.get_running_loop().run_in_executor(thread, begin)
        return Stream(call, _chunks(thread, parts), stack.pop_all(), None, media)


async def _chunks(thread: ThreadPoolExecutor, parts: Iterator[str]) -> AsyncIterator[bytes]:
    while content := await asyncio.get_running_loop().run_in_executor(thread, _next_chunk, parts):
        yield content


def _next_chunk(parts: Iterator[str]) -> bytes:
    found, size = [], 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size >= CHUNK:
            break
    return "".join(found).encode()


async def describe(call: Call) -> Response:
    """All that is known about a resource or a source, as text."""
    from reconciler.queries.resources import describe_resource
    from reconciler.queries.sources import describe_source
    from reconciler.render.layout import section_text
    from reconciler.render.resources import resource_sections
    from reconciler.render.sources import source_sections

    require_everything(call)
    target, settings = _target(call), call.api.settings
    if target is None:
        raise Problem(400, "key is the resource or source to describe")

    def read() -> Response:
        records = call.reader.records
        if isinstance(target, str):
            details = describe_source(settings, records, source_of(target), daemon_runs=call.api.is_alive())
            return _text_response(section_text(source_sections(details, False), colour=False))
        found = describe_resource(settings, records, target)
        return _text_response(section_text(resource_sections(*found, False), colour=False))

    return await apart(call, read)


async def read_events(call: Call) -> Response:
    """The last events, oldest first, and then new ones as they come if the client follows them."""
    from reconciler.queries.history import EventReader

    require_everything(call)
    target, media, settings = _target(call), call.accepted(LINES, TEXT), call.api.settings
    last = 0 if call.query("last") == "0" else call.count("last", 100, _MOST_EVENTS)

    def read() -> tuple[bytes, int]:
        reader = EventReader(settings, call.reader.records, target)
        return _event_lines(reader.newest(last), media), reader.position

    async with contextlib.AsyncExitStack() as stack:
        follows = call.flag("follow")
        if follows:
            stack.enter_context(call.api.streams.admit(call.caller.principal))
        content, position = await apart(call, read)
        if not follows:
            return Response(content, media_type=media)
        reader = EventReader(settings, call.reader.records, target, position)
        return Stream(call, _follow(reader, content, media), stack.pop_all(), require_everything, media)


async def _follow(reader: EventReader, content: bytes, media: str) -> AsyncIterator[bytes]:
    while True:
        if content:
            yield content
        while not (content := _event_lines(reader.more(), media)):
            await asyncio.sleep(_POLL_SECONDS)


def _event_lines(events: Sequence[Event], media: str) -> bytes:
    from reconciler.render.history import event_document, event_line

    if media == TEXT:
        return "".join(f"{printable(event_line(each, colour=False))}\n" for each in events).encode()
    return b"".join(msgspec.json.encode(event_document(each)) + b"\n" for each in events)


async def read_all_runs(call: Call) -> Response:
    """The last runs of all sources, or of one, that changed something or failed, newest first."""
    from reconciler.queries.history import list_runs
    from reconciler.render.history import run_document, run_line

    require_everything(call)
    last = call.count("last", 30, _MOST_RUNS)

    def read() -> Response:
        runs = list_runs(call.api.settings, call.reader.records, call.query("source"), last)
        if call.accepted(JSON, TEXT) == TEXT:
            return _text_response("\n".join(run_line(run, colour=False) for run in runs))
        return call.respond({"kind": "list", "itemKind": "run", "items": [run_document(run) for run in runs]})

    return await apart(call, read)


async def read_top(call: Call) -> Response:
    """The replicas on this host, with the processor time that they use during a moment, and their memory."""
    from reconciler.queries.top import ReplicaReader
    from reconciler.render.replicas import replica_document, replica_table

    require_everything(call)
    gvc = call.query("gvc") or None
    reader = ReplicaReader(call.api.settings, gvc)
    with call.api.overviews.admit(call.caller.principal):
        rows = await asyncio.to_thread(reader.read)
        if rows:
            await asyncio.sleep(_MEASURE_SECONDS)
            rows = await asyncio.to_thread(reader.read)
    if not rows and gvc is not None:
        check_gvc(call.reader.records, gvc)
    if call.accepted(JSON, TEXT) == TEXT:
        return _text_response("\n".join(replica_table(rows, colour=False)) if rows else "")
    return call.respond({"kind": "list", "itemKind": "replica", "items": replica_document(rows)["replicas"]})


async def read_snapshots(call: Call) -> Response:
    """The snapshots of a volume set or of all, or the final snapshots of deleted volumes on this host."""
    from reconciler.queries.snapshots import list_final_snapshots, list_snapshots
    from reconciler.render.snapshots import snapshot_document, snapshot_table

    require_everything(call)
    target = _target(call)
    if isinstance(target, str):
        raise Problem(400, "a source has no snapshots")

    def read() -> Response:
        final = call.flag("deleted")
        records, settings = call.reader.records, call.api.settings
        found = list_final_snapshots(settings, target) if final else list_snapshots(records, target)
        if call.accepted(JSON, TEXT) == TEXT:
            return _text_response(snapshot_table(found, call.api.clock.now()))
        items = [snapshot_document(each) for each in found]
        return call.respond({"kind": "list", "itemKind": "snapshot", "items": items})

    return await apart(call, read)


def require_everything(call: Call) -> None:
    """Refuse the request unless the caller may view every resource of every kind."""
    for kind in Kind:
        if not call.visibility(kind).everything:
            raise Problem(403, f"{call.caller.principal} has no permission `view` on every {kind}")


def _target(call: Call) -> Key | str | None:
    """The query parameter ``key``: a key, ``source/NAME``, or None for all."""
    text = call.query("key")
    try:
        return text if source_of(text) else Key.parse(text) if text else None
    except ValueError as error:
        raise Problem(400, str(error)) from None


async def apart(call: Call, read: Callable[[], _Result]) -> _Result:
    """Run ``read`` in a thread, among the overviews that are read at once."""
    with call.api.overviews.admit(call.caller.principal):
        return await call.apart(read, call.api.overview_slots)


def _text_response(text: str) -> Response:
    return Response(shown(text), media_type=TEXT)


def shown(text: str) -> str:
    """``text`` as a terminal may show it, with a line break at its end; "" without any."""
    return printable_lines(text if not text or text.endswith("\n") else f"{text}\n")


OPERATIONS = (
    Operation("GET", "/org/{org}/-status", read_status, "Read the resources with the status of each.", OVERVIEW,
              parameters=("kind", "gvc", "name"), forms=(TEXT, YAML)),
    Operation("GET", "/org/{org}/-describe", describe, "Describe a resource or source, as text.", OVERVIEW,
              parameters=("key",), media=TEXT),
    Operation("GET", "/org/{org}/-events", read_events, "Read the events of all resources, or of one.", OVERVIEW,
              parameters=("key", "last", "follow"), bounds={"last": (0, _MOST_EVENTS)}, media=LINES, forms=(TEXT,)),
    Operation("GET", "/org/{org}/-runs", read_all_runs, "List the runs of all sources, or of one.", OVERVIEW,
              parameters=("source", "last"), bounds={"last": (1, _MOST_RUNS)}, forms=(TEXT,)),
    Operation("GET", "/org/{org}/-top", read_top, "List the replicas on this host, with what they use.", OVERVIEW,
              parameters=("gvc",), forms=(TEXT,)),
    Operation("GET", "/org/{org}/-snapshot", read_snapshots, "List the snapshots of volume sets.", OVERVIEW,
              parameters=("key", "deleted"), forms=(TEXT,)),
)  # fmt: skip
