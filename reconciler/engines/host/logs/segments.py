"""Log files and how to read them: ``<root>/<gvc>/<workload>/<replica>/<container>/<first ms>-<number>.rlog``.

A segment is a sequence of blocks. Within one, times never decrease; ``number`` counts the segments of a stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from reconciler.engines.host.logs.blocks import SMALLEST, TAIL, Block, all_in, size_before, size_of, unpack_block
from reconciler.engines.reading import LogStream

LOGS = "logs"
"""The directory of the logs, in that of a location."""

_NAME = re.compile(r"([0-9]+)-([0-9]+)\.rlog")
_WINDOW = 64 << 10
"""Bytes of one read from the end of a segment."""


class Segment(msgspec.Struct, frozen=True, order=True):
    """One file of a stream; ``first`` is the time of its first block, in milliseconds."""

    number: int
    first: int
    path: str


class Stream(LogStream, frozen=True, order=True):
    """The output of one container of one replica; ``directory`` contains its segments."""

    directory: str = ""


def list_streams(places: Mapping[str, Path]) -> Iterator[Stream]:
    """Every stream at ``places`` (location → root), in order. Raises PermissionError."""
    for location, root in places.items():
        for gvc in sorted(list_names(root)):
            for workload in sorted(list_names(root / gvc)):
                yield from _of_workload(location, root, gvc, workload)


def _of_workload(location: str, root: Path, gvc: str, workload: str) -> Iterator[Stream]:
    for replica in sorted(list_names(root / gvc / workload)):
        for container in sorted(list_names(root / gvc / workload / replica)):
            directory = str(root / gvc / workload / replica / container)
            yield Stream(gvc, workload, replica, container, location, directory)


def list_names(directory: Path) -> list[str]:
    """The names in a directory; none if it does not exist. Raises PermissionError."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_segments(directory: str) -> list[Segment]:
    """The segments of the stream in ``directory``, oldest first."""
    matches = ((name, _NAME.fullmatch(name)) for name in list_names(Path(directory)))
    return sorted(Segment(int(m[2]), int(m[1]), f"{directory}/{name}") for name, m in matches if m is not None)


def make_segment(directory: str, number: int, first: int) -> Segment:
    """The segment with that number and time, whether its file exists or not."""
    return Segment(number, first, f"{directory}/{first}-{number}.rlog")


def iterate_forward(path: str, at: int) -> Iterator[tuple[Block, int]]:
    """Blocks of a segment from ``at`` on, each with the offset of the next; none if the file does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            content = file.read()
    except FileNotFoundError:
        return
    for block, end in all_in(content):
        yield block, at + end


def valid_end(path: str) -> int:
    """The end of the last valid block of a segment; a killed writer may have left an incomplete block after it."""
    try:
        end = os.stat(path).st_size
        if _read_last_block(_Window(path), end) is not None:
            return end
    except FileNotFoundError:
        return 0
    return max((after for _, after in iterate_forward(path, 0)), default=0)


def iterate_backward(path: str, end: int) -> Iterator[Block]:
    """Blocks of a segment that end at or before ``end``, newest first; none if the file does not exist."""
    window = _Window(path)
    while end >= SMALLEST:
        try:
            last_block = _read_last_block(window, end)
        except FileNotFoundError:
            return
        if last_block is None:
            yield from reversed([block for block, after in iterate_forward(path, 0) if after <= end])
            return
        yield last_block
        end -= size_of(last_block)


class _Window:
    """A part of a file in memory, so that small blocks need no read each, and streams no open file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begin = 0
        self._content = b""

    def between(self, begin: int, end: int) -> bytes:
        """Bytes ``begin`` to ``end``; fewer at the end of the file. Raises FileNotFoundError."""
        if begin < self._begin or end > self._begin + len(self._content):
            self._begin = min(begin, max(0, end - _WINDOW))
            with open(self._path, "rb", buffering=0) as file:
                self._content = os.pread(file.fileno(), end - self._begin, self._begin)
        return self._content[begin - self._begin : end - self._begin]


def _read_last_block(window: _Window, end: int) -> Block | None:
    """The block that ends at ``end``; None without a valid one."""
    tail = window.between(end - TAIL, end) if end >= SMALLEST else b""
    size = size_before(tail) if len(tail) == TAIL else 0
    return unpack_block(window.between(end - size, end)) if SMALLEST <= size <= end else None
