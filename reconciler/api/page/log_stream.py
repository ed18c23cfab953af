"""Logs that go on while a page shows them: new lines as the page has them, and after a loss what it missed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_macro
from reconciler.api.problems import Problem
from reconciler.api.routes.observing import FollowedLogs, follow_lines
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import EVENTS, make_page_operation
from reconciler.logql.log_entries import LineGrouper, LogEntry
from reconciler.times import parse_time

MOST_OF_BATCH = 500
"""The most lines that a page gets at once; where more come, the newest."""
_PAUSE = 0.25
"""The least seconds between two batches."""
_BEAT_SECONDS = 15.0
_MOST_SEEN = 10_000
_RETRY_SECONDS = 5
_BEAT = b"event: beat\ndata: \n\n"
PARAMETERS = ("query", "replica", "level", "after")


class LogCursor(NamedTuple):
    """How far a page is: the newest time that it has, in milliseconds since the epoch, and how many lines of that."""

    ms: int
    lines: int = 0

    @classmethod
    def parse(cls, text: str) -> LogCursor:
        """The cursor that ``str`` wrote. Raises ValueError."""
        ms, _, count = text.partition("-")
        if not (text.isascii() and ms.isdecimal() and count.isdecimal() and len(ms) < 14 and len(count) < 10):
            raise ValueError(f"{text[:40]!r} is no place in a log")
        return cls(int(ms), min(int(count), _MOST_SEEN))

    def __str__(self) -> str:
        return f"{self.ms}-{self.lines}"

    def advance(self, line: Mapping[str, Any]) -> LogCursor:
        """The cursor behind ``line`` too, which may be older than others."""
        ms = _read_ms(line)
        if ms == self.ms:
            return LogCursor(ms, self.lines + 1)
        return LogCursor(ms, 1) if ms > self.ms else self


def _read_ms(line: Mapping[str, Any]) -> int:
    return round(1000 * parse_time(line["time"]))


class LineBacklog:
    """Lines that came and were not sent yet: the newest, at most MOST_OF_BATCH, without those up to ``seen``."""

    def __init__(self, seen: LogCursor) -> None:
        self.is_ended = False
        self.cursor = seen
        """The place behind all lines that came, also those that are left out."""
        self._seen, self._is_first = seen, True
        self._lines: deque[bytes] = deque()
        self._is_cut = False
        self._came = asyncio.Event()

    async def fill(self, blocks: AsyncIterator[bytes]) -> None:
        """Take the lines of ``blocks`` until they end."""
        rest = b""
        async for block in blocks:
            *lines, rest = (rest + block).split(b"\n")
            self._add([line for line in lines if self._is_new(line)])
            if self._lines:
                self._came.set()
        self.is_ended = True
        self._came.set()

    def _add(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.cursor = self.cursor.advance(msgspec.json.decode(line))
        self._lines.extend(lines)
        while len(self._lines) > MOST_OF_BATCH:
            self._lines.popleft()
            self._is_cut = True

    async def take(self) -> tuple[list[dict[str, Any]], bool]:
        """The lines that came, and whether others before them are left out; none after _BEAT_SECONDS without any."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEAT_SECONDS):
                await self._came.wait()
        self._came.clear()
        lines, is_cut = list(self._lines), self._is_cut
        self._lines.clear()
        self._is_cut = False
        return [msgspec.json.decode(line) for line in lines], is_cut

    def _is_new(self, line: bytes) -> bool:
        """Whether the page does not have ``line``: the first lines can be of the millisecond in which it ended."""
        if not self._seen.lines:
            return True
        is_seen = _read_ms(msgspec.json.decode(line)) == self._seen.ms
        # Where so many came meanwhile, the newest lines do not reach back to those that the page has.
        self._is_cut |= not is_seen and self._is_first
        self._is_first = False
        self._seen = self._seen._replace(lines=self._seen.lines - 1 if is_seen else 0)
        return not is_seen


class EntryWriter:
    """Makes events of lines, for one page, which shows entries of ``level`` ("": all)."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._grouper = LineGrouper()
        self._names: dict[int, tuple[str, LogEntry]] = {}
        # A page that came back has entries of the stream before.
        self._prefix, self._count = secrets.token_hex(4), 0

    def write(self, lines: Sequence[Mapping[str, Any]], cursor: LogCursor, *, is_cut: bool) -> bytes:
        """The event with ``lines``; an entry that goes on is in it again as a whole, under the same name."""
        entries = {id(entry): entry for entry in map(self._grouper.add, lines)}
        shown = [self._show(entry) for entry in entries.values() if self._level in ("", entry.level)]
        content = msgspec.json.encode({"entries": shown, "isCut": is_cut})
        return b"id: %s\nevent: lines\ndata: %s\n\n" % (str(cursor).encode(), content)

    def _show(self, entry: LogEntry) -> dict[str, str]:
        if id(entry) not in self._names:
            if len(self._names) >= MOST_OF_BATCH:
                self._names.pop(next(iter(self._names)))
            self._count += 1
            self._names[id(entry)] = f"line-{self._prefix}-{self._count}", entry
        name, _ = self._names[id(entry)]
        return {"id": name, "html": render_macro("log_entry.html", "show_entry", entry, name)}


async def follow_log(call: Call) -> Response:
    """New lines of a query as events, as the page of logs shows them."""
    try:
        cursor = LogCursor.parse(call.request.headers.get("last-event-id") or call.query("after"))
    except ValueError as error:
        raise Problem(400, str(error)) from None
    async with contextlib.AsyncExitStack() as stack:
        try:
            # Half a millisecond: a float may be a little less than the time that it stands for.
            since = (cursor.ms + 0.5) / 1000
            logs = await follow_lines(call, since, MOST_OF_BATCH + cursor.lines + 1, stack, call.api.page.logs)
        except Problem as problem:
            # A browser shows nothing of an answer that is no stream.
            return Response(_write_refusal(problem), media_type=EVENTS)
        parts = _stream_lines(logs, cursor, call.query("level"))
        return PartStream(call, parts, stack.pop_all(), logs.check, EVENTS)


def _write_refusal(problem: Problem) -> bytes:
    content = msgspec.json.encode(str(problem))
    return b"retry: %d\nevent: refused\ndata: %s\n\n" % (1000 * _RETRY_SECONDS, content)


async def _stream_lines(logs: FollowedLogs, cursor: LogCursor, level: str) -> AsyncIterator[bytes]:
    yield b"retry: 1000\nevent: open\ndata: \n\n"
    backlog, writer = LineBacklog(cursor), EntryWriter(level)
    filling = asyncio.create_task(backlog.fill(logs.blocks))
    try:
        while not backlog.is_ended:
            lines, is_cut = await backlog.take()
            yield writer.write(lines, backlog.cursor, is_cut=is_cut) if lines else _BEAT
            await asyncio.sleep(_PAUSE)
    finally:
        filling.cancel()


PAGES = (
    make_page_operation(
        "/ui/logs/follow", follow_log, "New lines of logs, for a page that is open.", "readLogs", PARAMETERS
    )._replace(media=EVENTS),
)
