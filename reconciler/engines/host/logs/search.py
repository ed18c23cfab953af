"""Finds lines in the log streams of this host: a number of existing lines, newest first, then new lines."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.logs.blocks import Block, lines_of
from reconciler.engines.host.logs.cri import decode
from reconciler.engines.host.logs.segments import Segment, Stream, backward, forward, segments, streams, valid_end
from reconciler.logql.query import LogQuery

Choose = Callable[[Mapping[str, str]], bool]
"""Whether a stream with these labels is selected."""

Pick = Callable[[Block, Mapping[str, str]], Sequence[bytes]]
"""The selected lines of a block of a stream with these labels, in their order."""


class Line(NamedTuple):
    """One line and its time in milliseconds since the epoch: when it was read, or written if its form has that."""

    ms: int
    stream: Stream
    text: bytes


class Span(NamedTuple):
    """A period in milliseconds since the epoch, both ends included."""

    since: int = 0
    until: int = 1 << 62


ALWAYS = Span()


def select(query: LogQuery, block: Block, stream: Mapping[str, str]) -> Sequence[bytes]:
    """The lines of ``block``, of a stream with these labels, that match ``query``, in their order."""
    if query.takes_all:
        return block.lines()
    text = block.text()
    return query.filter_lines(lines_of(text, block.continues), stream) if query.may_match(text) else ()


class Search:
    """Lines of the streams below ``places`` (location → root) that ``choose`` and ``pick`` select.

    ``newest`` returns lines that existed when this object was created, ``more`` the lines since the last call.
    """

    def __init__(self, places: Callable[[], Mapping[str, Path]], choose: Choose, pick: Pick) -> None:
        self._places = places
        self._choose = choose
        self._pick = pick
        self._chosen: dict[Stream, bool] = {}
        self._ends: dict[Stream, tuple[int, int]] = {}
        for stream in self.streams():
            there = segments(stream.directory)
            if there:
                self._ends[stream] = (there[-1].number, valid_end(there[-1].path))

    def streams(self) -> Iterator[Stream]:
        """The selected streams that exist now."""
        for stream in streams(self._places()):
            if stream not in self._chosen:
                self._chosen[stream] = self._choose(stream.labels())
            if self._chosen[stream]:
                yield stream

    def newest(self, limit: int, span: Span = ALWAYS) -> list[Line]:
        """The last ``limit`` lines within ``span``, oldest first; reads only the necessary blocks."""
        found = list(islice(self._backward(span), limit))
        found.reverse()
        return found

    def more(self) -> list[Line]:
        """The lines since the last call, oldest first."""
        found = [line for stream in self.streams() for line in self._since(stream)]
        found.sort(key=lambda line: (line.ms, line.stream))
        return found

    def _backward(self, span: Span) -> Iterator[Line]:
        """Lines in reverse order. Only one block of each stream is in memory at a time."""
        ranked = [(stream, _blocks(stream, *end, span)) for stream, end in sorted(self._ends.items())]
        heap = [(-block.ms, -rank, block) for rank, (_, rest) in enumerate(ranked) if (block := next(rest, None))]
        heapq.heapify(heap)
        while heap:
            _, rank, block = heap[0]
            stream, rest = ranked[-rank]
            for text in reversed(self._pick(block, stream.labels())):
                yield Line(block.ms, stream, text)
            following = next(rest, None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (-following.ms, rank, following))

    def _since(self, stream: Stream) -> Iterator[Line]:
        number, at = self._ends.get(stream, (0, 0))
        there, labels = segments(stream.directory), stream.labels()
        if there and there[-1].number < number:
            number = 0  # all segments were removed and the stream started again
        for segment in _from(there, number):
            at = at if segment.number == number else 0
            for block, after in forward(segment.path, at):
                at = after
                yield from (Line(each.ms, stream, text) for each in decode(block) for text in self._pick(each, labels))
            self._ends[stream] = (segment.number, at)


def _from(there: Iterable[Segment], number: int) -> Iterator[Segment]:
    return (each for each in there if each.number >= number)


def _blocks(stream: Stream, number: int, end: int, span: Span) -> Iterator[Block]:
    """Blocks of a stream within ``span``, newest first, starting at the byte ``end`` of the segment ``number``."""
    for segment in reversed(segments(stream.directory)):
        if segment.number > number or segment.first > span.until:
            continue
        for block in backward(segment.path, end if segment.number == number else valid_end(segment.path)):
            found = (each for each in reversed(decode(block)) if each.length)
            yield from (each for each in found if span.since <= each.ms <= span.until)
            if block.ms < span.since:
                break
