"""Overviews for operators: what commands such as `reconciler get` show, as JSON and as the text that they print.

They contain all resources, so that the caller needs the permission to view everything. Each imports what it shows with
where it needs it: megabytes that a server at rest does without.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.reading import Reader
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import LINES, OVERVIEW, TEXT, YAML, Operation
from reconciler.model.key import KINDS, Kind
from reconciler.model.target import Target, find_kind, parse_target
from reconciler.overviews.choosing import Choice, choose_entries, take_choice
from reconciler.overviews.overview import (
    FOLLOW,
    LAST,
    SOURCES,
    WIDE,
    Entries,
    Feed,
    Listing,
    Measurement,
    Overview,
    Parameter,
    ReadContext,
)
from reconciler.overviews.table import OVERVIEWS
from reconciler.overviews.writing import FORMS
from reconciler.printable import escape_text, printable_lines
from reconciler.queries.existence import did_you_mean
from reconciler.render.style import TextStyle
from reconciler.times import parse_past

_POLL_SECONDS = 0.5
_MEASURE_SECONDS = 0.5
"""Seconds in which the processor time of replicas is measured."""
CHUNK = 65_536
"""Characters of an overview that are made before some are sent, so that it takes no more memory than the client reads.
"""
_FORMS = {JSON: "json", YAML: "yaml"}
"""Media type → the form of an overview."""
_Result = TypeVar("_Result")


async def read_overview(call: Call, overview: Overview) -> Response:
    """``overview``, in the form that the client accepts."""
    require_everything(call)
    declared = (*overview.parameters, *overview.choices)
    parameters = {parameter.name: _parse_parameter(call, parameter, overview) for parameter in declared}
    reading = _Reading(overview, take_choice(parameters), parameters, call.flag(WIDE) is True)
    media = call.choose_media_type(*_list_media_types(overview))
    if overview.is_measured:
        return await _measure_usage(call, reading, media)
    if overview.is_feed:
        return await _read_feed(call, reading, media)
    if _is_long(overview):
        return await _stream_overview(call, reading, media)
    return await run_in_thread(call, lambda: _respond_whole(call, reading, media))


class _Reading(NamedTuple):
    """A request: an overview, what is chosen of it, its other parameters, and whether its text is wide."""

    overview: Overview
    choice: Choice
    parameters: dict[str, Any]
    is_wide: bool

    def read(self, context: ReadContext) -> Any:
        """What the overview reads in ``context``; of a list, what is chosen."""
        value = self.overview.read(context, **self.parameters)
        return choose_entries(self.overview, value, self.choice) if isinstance(value, Entries) else value

    def choose(self, rows: Iterable[Any], context: ReadContext) -> Entries:
        """What is chosen of ``rows``."""
        return choose_entries(self.overview, Entries(rows, context), self.choice)

    def write(self, value: Any, media: str) -> Iterator[str]:
        """``value`` as ``media``, in parts."""
        if media == TEXT:
            return iter((format_terminal_text(self.overview.text(value, TextStyle(wide=self.is_wide))),))
        return FORMS[_FORMS[media]](self.overview, value)


def _is_long(overview: Overview) -> bool:
    """Whether an overview has all resources, so that it is sent in parts."""
    return overview.listing is not None and overview.listing.extras is not None


def _respond_whole(call: Call, reading: _Reading, media: str) -> Response:
    """An overview; notes and the exit code of its command are in headers, where what is noted has no list."""
    overview = reading.overview
    value = reading.read(_make_read_context(call, call.reader))
    if overview.listing is not None and media == JSON:
        return _respond_list(call, overview.listing, value)
    headers = {}
    if overview.notes is not None and overview.listing is None and (notes := [*overview.notes(value)]):
        headers["Note"] = escape_text("; ".join(notes))
    if overview.exit_code is not None:
        changing = overview.is_changing is not None and overview.is_changing(value)
        headers |= {"Exit-Code": str(overview.exit_code(value)), "Changing": "yes" if changing else "no"}
    return Response("".join(reading.write(value, media)), media_type=media, headers=headers)


def _respond_list(call: Call, listing: Listing, entries: Entries) -> Response:
    items = list(map(listing.item, entries.rows))
    return call.respond({"kind": "list", "itemKind": listing.item_kind, "items": items})


def _list_media_types(overview: Overview) -> tuple[str, ...]:
    """The media types of ``overview``, the default first."""
    if overview.is_feed:
        return (LINES, TEXT)
    if overview.listing is not None and not _is_long(overview):
        return (JSON, TEXT)
    return (TEXT, JSON, YAML) if overview.is_for_people else (JSON, TEXT, YAML)


def _make_read_context(call: Call, reader: Reader) -> ReadContext:
    return ReadContext(call.api.settings, lambda: reader.records, call.api.clock.now, call.api.is_alive)


def _parse_parameter(call: Call, parameter: Parameter, overview: Overview) -> Any:
    """The value of a query parameter. Raises Problem."""
    name = parameter.name
    match parameter.type:
        case "number":
            least, most = parameter.bounds
            if parameter.default is None and not call.query(name):
                return None
            return 0 if least == 0 and call.query(name) == "0" else call.count(name, parameter.default or 1, most)
        case "flag":
            return call.flag(name) is True
        case "kind":
            return _parse_kind(call.query(name))
        case "time":
            return _parse_past_time(call, name)
        case "key" | "target":
            return _parse_target(call, parameter, overview)
    return call.query(name) or parameter.default


def _parse_kind(text: str) -> Kind | str | None:
    name = find_kind(text)
    kind = KINDS.get(name)
    if text and kind is None and name != SOURCES:
        raise Problem(404, f"there is no kind {text[:60]!r}{did_you_mean(text, (*KINDS, SOURCES))}")
    return kind or name or None


def _parse_past_time(call: Call, name: str) -> float | None:
    text = call.query(name)
    if not text:
        return None
    try:
        return parse_past(text, call.api.clock.now())
    except ValueError:
        raise Problem(400, f"{name} is a time such as 2026-01-31T12:00:00Z, or an age such as 30m") from None


def _parse_target(call: Call, parameter: Parameter, overview: Overview) -> Target | None:
    """What the parameter names: a resource, or a source where it takes that; None for all."""
    text = call.query(parameter.name)
    if parameter.required and not text:
        about = f"of the {overview.name}" if parameter.type == "key" else f"or source to {overview.name}"
        raise Problem(400, f"{parameter.name} is the resource {about}")
    if not text:
        return None
    try:
        target = parse_target(text)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    if target.source and parameter.type == "key":
        raise Problem(400, f"a source has no {overview.name}")
    return target


async def _stream_overview(call: Call, reading: _Reading, media: str) -> Response:
    """A long overview, in parts."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(call.api.overviews.admit(call.caller.principal))
        reader = stack.enter_context(contextlib.closing(call.api.new_reader()))
        stack.enter_context(reader.snapshot())
        # The thread ends before what it reads from is closed.
        thread = stack.enter_context(ThreadPoolExecutor(1, "overview"))

        def begin() -> Iterator[str]:
            return reading.write(reading.read(_make_read_context(call, reader)), media)

        parts = await asyncio.get_running_loop().run_in_executor(thread, begin)
        return PartStream(call, _read_chunks(thread, parts), stack.pop_all(), None, media)


async def _read_chunks(thread: ThreadPoolExecutor, parts: Iterator[str]) -> AsyncIterator[bytes]:
    while content := await asyncio.get_running_loop().run_in_executor(thread, _next_chunk, parts):
        yield content


def _next_chunk(parts: Iterator[str]) -> bytes:
    chunk, size = [], 0
    for part in parts:
        chunk.append(part)
        size += len(part)
        if size >= CHUNK:
            break
    return "".join(chunk).encode()


async def _read_feed(call: Call, reading: _Reading, media: str) -> Response:
    """The last entries of a feed, and then new ones as they come if the client follows them."""
    last = reading.parameters.pop(LAST)
    context = _make_read_context(call, call.reader)

    def encode(rows: Sequence[Any]) -> bytes:
        return _encode_lines(reading.overview, reading.choose(rows, context), media)

    def read() -> tuple[bytes, int]:
        feed: Feed = reading.read(context)
        return encode(feed.newest(last)), feed.position

    async with contextlib.AsyncExitStack() as stack:
        follows = call.flag(FOLLOW)
        if follows:
            stack.enter_context(call.api.streams.admit(call.caller.principal))
        content, position = await run_in_thread(call, read)
        if not follows:
            return Response(content, media_type=media)
        feed: Feed = reading.read(context)
        feed.resume(position)
        return PartStream(call, _follow_feed(feed, encode, content), stack.pop_all(), require_everything, media)


async def _follow_feed(feed: Feed, encode: Callable[[Sequence[Any]], bytes], content: bytes) -> AsyncIterator[bytes]:
    while True:
        if content:
            yield content
        while not (content := encode(feed.more())):
            await asyncio.sleep(_POLL_SECONDS)


def _encode_lines(overview: Overview, entries: Entries, media: str) -> bytes:
    """A line for each of ``entries``."""
    if media == TEXT:
        texts = (overview.text(entries._replace(rows=[row]), TextStyle()) for row in entries.rows)
        return "".join(f"{escape_text(text)}\n" for text in texts).encode()
    assert overview.listing is not None
    return b"".join(msgspec.json.encode(overview.listing.item(row)) + b"\n" for row in entries.rows)


async def _measure_usage(call: Call, reading: _Reading, media: str) -> Response:
    """What is used during a moment, in which no thread waits."""
    context = _make_read_context(call, call.reader)
    with call.api.overviews.admit(call.caller.principal):
        measurement: Measurement = await call.apart(partial(reading.read, context))
        rows = await asyncio.to_thread(measurement.read)
        if rows:
            await asyncio.sleep(_MEASURE_SECONDS)
            rows = await asyncio.to_thread(measurement.read)
    entries, listing = reading.choose(rows, context), reading.overview.listing
    assert listing is not None
    if media == JSON:
        return _respond_list(call, listing, entries)
    return Response("".join(reading.write(entries, media)), media_type=media)


def require_everything(call: Call) -> None:
    """Refuse the request unless the caller may view every resource of every kind."""
    for kind in Kind:
        if not call.visibility(kind).everything:
            raise Problem(403, f"{call.caller.principal} has no permission `view` on every {kind}")


def sees_everything(call: Call) -> bool:
    """Whether the caller may view every resource of every kind."""
    return all(call.visibility(kind).everything for kind in Kind)


async def run_in_thread(call: Call, read: Callable[[], _Result]) -> _Result:
    """Run ``read`` in a thread, among the overviews that are read at once."""
    with call.api.overviews.admit(call.caller.principal):
        return await call.apart(read, call.api.overview_slots)


def format_terminal_text(text: str) -> str:
    """``text`` as a terminal may show it, with a line break at its end; "" without any."""
    return printable_lines(text if not text or text.endswith("\n") else f"{text}\n")


def _make_operation(overview: Overview) -> Operation:
    """The operation that shows ``overview``."""
    offered = _list_media_types(overview)
    declared = (*overview.parameters, *overview.choices)
    return Operation(
        "GET",
        f"/org/{{org}}/{overview.path}",
        partial(read_overview, overview=overview),
        overview.summary,
        OVERVIEW,
        parameters=(*(parameter.name for parameter in declared), *([FOLLOW] if overview.is_feed else []), WIDE),
        bounds={parameter.name: parameter.bounds for parameter in declared if parameter.type == "number"},
        media=offered[0],
        forms=offered[1:],
    )


OPERATIONS = tuple(map(_make_operation, OVERVIEWS.values()))
