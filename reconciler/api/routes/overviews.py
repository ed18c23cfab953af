"""Overviews for operators: what commands such as `reconciler get` show, as JSON and as the text that they print.

They contain all resources, so that the caller needs the permission to view everything. Each imports what it shows with
where it needs it: megabytes that a server at rest does without.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.reading import Reader
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import LINES, OVERVIEW, TEXT, YAML, Operation
from reconciler.model.key import KINDS, Kind
from reconciler.model.target import Target, find_kind, parse_target
from reconciler.overviews.overview import FOLLOW, LAST, Feed, Measurement, Overview, Parameter, ReadContext
from reconciler.overviews.table import OVERVIEWS
from reconciler.printable import escape_text, printable_lines
from reconciler.queries.existence import did_you_mean

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
    parameters = {parameter.name: _parse_parameter(call, parameter, overview) for parameter in overview.parameters}
    media = call.choose_media_type(*_list_media_types(overview))
    if overview.is_measured:
        return _build_response(call, overview, await _measure_usage(call, overview, parameters), media)
    if overview.is_feed:
        return await _read_feed(call, overview, parameters, media)
    if overview.exit_code is not None:
        return await run_in_thread(call, lambda: _respond_whole(call, overview, parameters, media))
    if overview.forms:
        return await _stream_overview(call, overview, parameters, media)

    return await run_in_thread(
        call, lambda: _build_response(call, overview, _read_overview_value(call, overview, parameters), media)
    )


def _read_overview_value(call: Call, overview: Overview, parameters: dict[str, Any]) -> Any:
    """What ``overview`` reads with the reader of ``call``."""
    return overview.read(_make_read_context(call, call.reader), **parameters)


def _build_response(call: Call, overview: Overview, value: Any, media: str) -> Response:
    if media == TEXT or overview.items is None:
        return _text_response(overview.text(value, False))
    items = list(overview.items(value))
    return call.respond({"kind": "list", "itemKind": overview.item_kind, "items": items})


def _respond_whole(call: Call, overview: Overview, parameters: dict[str, Any], media: str) -> Response:
    """An overview that its command ends with an exit code for, with that in a header."""
    value = _read_overview_value(call, overview, parameters)
    assert overview.exit_code is not None
    shown = (
        format_terminal_text(overview.text(value, False))
        if media == TEXT
        else "".join(overview.forms[_FORMS[media]](value))
    )
    changing = overview.is_changing is not None and overview.is_changing(value)
    headers = {"Exit-Code": str(overview.exit_code(value)), "Changing": "yes" if changing else "no"}
    return Response(shown, media_type=media, headers=headers)


def _list_media_types(overview: Overview) -> tuple[str, ...]:
    """The media types of ``overview``, the default first."""
    if overview.is_feed:
        return (LINES, TEXT)
    if overview.forms:
        return (JSON, TEXT, YAML)
    return (TEXT,) if overview.items is None else (JSON, TEXT)


def _make_read_context(call: Call, reader: Reader) -> ReadContext:
    return ReadContext(call.api.settings, lambda: reader.records, call.api.clock.now, call.api.is_alive)


def _parse_parameter(call: Call, parameter: Parameter, overview: Overview) -> Any:
    """The value of a query parameter. Raises Problem."""
    name = parameter.name
    match parameter.type:
        case "number":
            least, most = parameter.bounds
            return 0 if least == 0 and call.query(name) == "0" else call.count(name, parameter.default, most)
        case "flag":
            return call.flag(name) is True
        case "kind":
            return _parse_kind(call.query(name))
        case "key" | "target":
            return _parse_target(call, parameter, overview)
    return call.query(name) or parameter.default


def _parse_kind(text: str) -> Kind | None:
    kind = KINDS.get(find_kind(text))
    if text and kind is None:
        raise Problem(404, f"there is no kind {text[:60]!r}{did_you_mean(text, KINDS)}")
    return kind


def _parse_target(call: Call, parameter: Parameter, overview: Overview) -> Target | None:
    """What the parameter names: a resource, or a source where it takes that; None for all."""
    text = call.query(parameter.name)
    if parameter.required and not text:
        raise Problem(400, f"{parameter.name} is the resource or source to {overview.name}")
    if not text:
        return None
    try:
        target = parse_target(text)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    if target.source and parameter.type == "key":
        raise Problem(400, f"a source has no {overview.name}")
    return target


async def _stream_overview(call: Call, overview: Overview, parameters: dict[str, Any], media: str) -> Response:
    """A long overview, in parts."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(call.api.overviews.admit(call.caller.principal))
        reader = stack.enter_context(contextlib.closing(call.api.new_reader()))
        stack.enter_context(reader.snapshot())
        # The thread ends before what it reads from is closed.
        thread = stack.enter_context(ThreadPoolExecutor(1, "overview"))

        def begin() -> Iterator[str]:
            value = overview.read(_make_read_context(call, reader), **parameters)
            return (
                iter((format_terminal_text(overview.text(value, False)),))
                if media == TEXT
                else overview.forms[_FORMS[media]](value)
            )

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


async def _read_feed(call: Call, overview: Overview, parameters: dict[str, Any], media: str) -> Response:
    """The last entries of a feed, and then new ones as they come if the client follows them."""
    last = parameters.pop(LAST)

    def read() -> tuple[bytes, int]:
        feed: Feed = _read_overview_value(call, overview, parameters)
        return _encode_lines(overview, feed.newest(last), media), feed.position

    async with contextlib.AsyncExitStack() as stack:
        follows = call.flag(FOLLOW)
        if follows:
            stack.enter_context(call.api.streams.admit(call.caller.principal))
        content, position = await run_in_thread(call, read)
        if not follows:
            return Response(content, media_type=media)
        feed: Feed = _read_overview_value(call, overview, parameters)
        feed.resume(position)
        return PartStream(
            call, _follow_feed(overview, feed, content, media), stack.pop_all(), require_everything, media
        )


async def _follow_feed(overview: Overview, feed: Feed, content: bytes, media: str) -> AsyncIterator[bytes]:
    while True:
        if content:
            yield content
        while not (content := _encode_lines(overview, feed.more(), media)):
            await asyncio.sleep(_POLL_SECONDS)


def _encode_lines(overview: Overview, entries: Sequence[Any], media: str) -> bytes:
    """A line for each of ``entries``."""
    if media == TEXT:
        return "".join(f"{escape_text(overview.text([entry], False))}\n" for entry in entries).encode()
    assert overview.items is not None
    return b"".join(msgspec.json.encode(item) + b"\n" for item in overview.items(entries))


async def _measure_usage(call: Call, overview: Overview, parameters: dict[str, Any]) -> Sequence[Any]:
    """What is used during a moment, in which no thread waits."""
    with call.api.overviews.admit(call.caller.principal):
        measurement: Measurement = await call.apart(partial(_read_overview_value, call, overview, parameters))
        rows = await asyncio.to_thread(measurement.read)
        if rows:
            await asyncio.sleep(_MEASURE_SECONDS)
            rows = await asyncio.to_thread(measurement.read)
    return rows


def require_everything(call: Call) -> None:
    """Refuse the request unless the caller may view every resource of every kind."""
    for kind in Kind:
        if not call.visibility(kind).everything:
            raise Problem(403, f"{call.caller.principal} has no permission `view` on every {kind}")


async def run_in_thread(call: Call, read: Callable[[], _Result]) -> _Result:
    """Run ``read`` in a thread, among the overviews that are read at once."""
    with call.api.overviews.admit(call.caller.principal):
        return await call.apart(read, call.api.overview_slots)


def _text_response(text: str) -> Response:
    return Response(format_terminal_text(text), media_type=TEXT)


def format_terminal_text(text: str) -> str:
    """``text`` as a terminal may show it, with a line break at its end; "" without any."""
    return printable_lines(text if not text or text.endswith("\n") else f"{text}\n")


def _make_operation(overview: Overview) -> Operation:
    """The operation that shows ``overview``."""
    offered = _list_media_types(overview)
    return Operation(
        "GET",
        f"/org/{{org}}/{overview.path}",
        partial(read_overview, overview=overview),
        overview.summary,
        OVERVIEW,
        parameters=(*(parameter.name for parameter in overview.parameters), *([FOLLOW] if overview.is_feed else [])),
        bounds={parameter.name: parameter.bounds for parameter in overview.parameters if parameter.type == "number"},
        media=offered[0],
        forms=offered[1:],
    )


OPERATIONS = tuple(map(_make_operation, OVERVIEWS.values()))
