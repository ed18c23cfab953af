"""Finds lines in the log streams of this host: existing lines, newest first, then new lines."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from reconciler.engines.host.logs.blocks import Block
from reconciler.engines.host.logs.cri import decode_block
from reconciler.engines.host.logs.segments import (
    Segment,
    Stream,
    iterate_backward,
    iterate_forward,
    list_segments,
    list_streams,
    valid_end,
)
from reconciler.engines.reading import ALWAYS, LogLine, LogSelection, LogSpan


class Search:
    """Lines of the streams below ``places`` (location → root) that ``selection`` takes.

    ``backward`` yields lines that existed when this object was created, ``more`` returns those since the last call.
    """

    def __init__(self, places: Mapping[str, Path], selection: LogSelection) -> None:
        self._places = places
        self._selection = selection
        self._chosen: dict[Stream, bool] = {}
        self._ends: dict[Stream, tuple[int, int]] = {}
        for stream in self.streams():
            there = list_segments(stream.directory)
            if there:
                self._ends[stream] = (there[-1].number, valid_end(there[-1].path))

    def streams(self) -> Iterator[Stream]:
        """The selected streams that exist now."""
        for stream in list_streams(self._places):
            if stream not in self._chosen:
                self._chosen[stream] = self._selection.streams(stream.labels())
            if self._chosen[stream]:
                yield stream

    def more(self) -> list[LogLine]:
        """The lines since the last call, oldest first."""
        lines = [line for stream in self.streams() for line in self._since(stream)]
        lines.sort(key=lambda line: (line.ms, line.stream))
        return lines

    def backward(self, span: LogSpan = ALWAYS) -> Iterator[LogLine]:
        """Lines within ``span``, newest first. Only one block of each stream is in memory at a time."""
        ranked = [(stream, _iterate_blocks(stream, *end, span)) for stream, end in sorted(self._ends.items())]
        heap = [(-block.ms, -rank, block) for rank, (_, rest) in enumerate(ranked) if (block := next(rest, None))]
        heapq.heapify(heap)
        while heap:
            _, rank, block = heap[0]
            stream, rest = ranked[-rank]
            for text in reversed(self._selection.lines(block, stream.labels())):
                yield LogLine(block.ms, stream, text)
            following = next(rest, None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (-following.ms, rank, following))

    def _since(self, stream: Stream) -> Iterator[LogLine]:
        number, at = self._ends.get(stream, (0, 0))
        there, labels = list_segments(stream.directory), stream.labels()
        if there and there[-1].number < number:
            number = 0  # all segments were removed and the stream started again
        for segment in _select_segments(there, number):
            at = at if segment.number == number else 0
            for block, after in iterate_forward(segment.path, at):
                at = after
                for part in decode_block(block):
                    yield from (LogLine(part.ms, stream, text) for text in self._selection.lines(part, labels))
            self._ends[stream] = (segment.number, at)


def _select_segments(there: Iterable[Segment], number: int) -> Iterator[Segment]:
    return (segment for segment in there if segment.number >= number)


def _iterate_blocks(stream: Stream, number: int, end: int, span: LogSpan) -> Iterator[Block]:
    """Blocks of a stream within ``span``, newest first, starting at the byte ``end`` of the segment ``number``."""
    for segment in reversed(list_segments(stream.directory)):
        if segment.number > number or segment.first > span.until:
            continue
        for block in iterate_backward(segment.path, end if segment.number == number else valid_end(segment.path)):
            blocks = (decoded_block for decoded_block in reversed(decode_block(block)) if decoded_block.length)
            yield from (block for block in blocks if span.since <= block.ms <= span.until)
            if block.ms < span.since:
                break
