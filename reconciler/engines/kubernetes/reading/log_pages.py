"""The log of one container, as the API server gives it: a page of it backwards, or what is new."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.times import format_iso_time

FIRST_TAIL = 100
"""Lines of the first page."""
GROWTH = 4
"""How many times as many lines a further page asks for."""
PAGE_BYTES = 256 << 10
"""Bytes of a page in memory, which the lines of one time may exceed."""
NEW_BYTES = 1 << 20
"""Bytes of new lines that are read at once."""
SILENCE_SECONDS = 5.0
"""Seconds without a line after which a log is left out: its node may be gone."""

_SECOND = 10**9
_NO_LOG = (400, 404)
"""The answers for a container that has not started, had no run before, or is gone."""
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class LogLocator(NamedTuple):
    """Where the log of a container is: ``path`` is that of its pod's."""

    path: str
    container: str


class RawLine(NamedTuple):
    """A line as the API server sends it, and its time in nanoseconds since the epoch."""

    ns: int
    raw: bytes

    @property
    def text(self) -> bytes:
        """What the container wrote."""
        return self.raw.partition(b" ")[2]


class LogPage(NamedTuple):
    """Lines in the order in which they were written; ``whole``: none is before them."""

    lines: Sequence[RawLine] = ()
    whole: bool = True


class LogPosition(NamedTuple):
    """The last line that was read, and how often it stands there in a row."""

    line: RawLine
    repeats: int = 1

    def move(self, lines: Sequence[RawLine]) -> LogPosition:
        """The position after ``lines``, which follow this one."""
        if not lines:
            return self
        position = find_position(lines)
        assert position is not None
        same = position.repeats == len(lines) and position.line == self.line
        return position._replace(repeats=position.repeats + self.repeats) if same else position


class NewLines(NamedTuple):
    """The lines after a position; ``connected``: the position is in the log, so that none is missing between."""

    lines: Sequence[RawLine] = ()
    connected: bool = False


def find_position(lines: Sequence[RawLine]) -> LogPosition | None:
    """The position after ``lines``; None if there are none."""
    if not lines:
        return None
    different = (number for number, line in enumerate(reversed(lines)) if line != lines[-1])
    return LogPosition(lines[-1], next(different, len(lines)))


async def read_page(
    api: KubeApi, locator: LogLocator, tail: int, before: int | None, since: float, *, previous: bool = False
) -> LogPage:
    """Of the last ``tail`` lines since ``since`` (seconds), the newest ones before the first of the time ``before``.

    Those of the same time are in one page. So it can have no lines without being whole: ``tail`` was too small.
    """
    page: deque[RawLine] = deque()
    size = total = 0
    cut = reached = False
    params = {"tailLines": str(tail)} | ({"sinceTime": format_iso_time(since)} if since > 0 else {})
    async with _open_log(api, locator, params, previous) as log:
        async for line in log:
            total += 1
            reached = reached or line.ns == before
            if reached:
                continue
            page.append(line)
            size += len(line.raw)
            while size > PAGE_BYTES and page[0].ns != line.ns:
                size -= len(page.popleft().raw)
                cut = True
    if not reached and before is not None:
        # What was shown last is no longer there, or not among so many lines.
        return LogPage((), whole=total < tail)
    whole = total < tail and not cut
    lines = list(page)
    return LogPage(lines if whole else _drop_first_time(lines), whole)


def _drop_first_time(lines: Sequence[RawLine]) -> Sequence[RawLine]:
    """The lines without those of the first time, of which some may be missing."""
    later = next((number for number, line in enumerate(lines) if line.ns != lines[0].ns), len(lines))
    return lines[later:]


async def read_last_page(api: KubeApi, locator: LogLocator) -> LogPage:
    """The newest lines of the present run: all of their times, and none only if there are none."""
    tail = FIRST_TAIL
    while not (page := await read_page(api, locator, tail, None, 0)).lines and not page.whole:
        tail *= GROWTH
    return page


async def read_new_lines(
    api: KubeApi, locator: LogLocator, position: LogPosition | None, *, previous: bool = False
) -> NewLines:
    """The lines after ``position``, oldest first; all lines without one."""
    since = {"sinceTime": format_iso_time(position.line.ns // _SECOND)} if position is not None else {}
    repeats = position.repeats if position is not None else 0
    new: list[RawLine] = []
    size = 0
    async with _open_log(api, locator, since, previous) as lines:
        async for line in lines:
            if position is not None and repeats and line == position.line:
                repeats -= 1
                # What stands before it was read before it, whatever its time.
                new, size = [], 0
                continue
            if size > NEW_BYTES:
                if not repeats:
                    break
                # Whether the lines so far are new is known only at the position.
                continue
            if position is None or not repeats or line.ns >= position.line.ns:
                new.append(line)
                size += len(line.raw)
    return NewLines(new, connected=not repeats)


@asynccontextmanager
async def _open_log(
    api: KubeApi, locator: LogLocator, params: dict[str, str], previous: bool
) -> AsyncIterator[AsyncIterator[RawLine]]:
    """The lines of a log, none if there is no log. Raises EngineError."""
    params = {"container": locator.container, "timestamps": "true", **params}
    if previous:
        params["previous"] = "true"
    async with AsyncExitStack() as stack:
        try:
            lines = await stack.enter_async_context(api.read_lines(locator.path, "read a log", params, SILENCE_SECONDS))
        except ClusterError as error:
            if error.code not in _NO_LOG:
                raise
            yield _list_no_lines()
        else:
            yield _parse_lines(lines)


async def _list_no_lines() -> AsyncIterator[RawLine]:
    lines: Sequence[RawLine] = ()
    for line in lines:
        yield line


async def _parse_lines(lines: AsyncIterator[bytes]) -> AsyncIterator[RawLine]:
    """The lines that have a time; the words of a kubelet that cannot read on have none."""
    async for raw in lines:
        match = _TIME.match(raw)
        if match is not None:
            yield RawLine(_parse_second(match[1] + match[3]) + int((match[2] or b"0").ljust(9, b"0")), raw)


@lru_cache(maxsize=1024)
def _parse_second(text: bytes) -> int:
    """A time without a fraction, in nanoseconds since the epoch; 0 if it is none."""
    try:
        return int(datetime.fromisoformat(text.decode()).timestamp()) * _SECOND
    except ValueError:
        return 0
