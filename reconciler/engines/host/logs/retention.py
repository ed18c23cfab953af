"""How much disk the logs of a location take, and what goes first where that is too much."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.logs.segments import segments, streams

_CLUSTER = 4096
_LEAVE = 0.95
"""Share of the budget that is left full, so that not every line makes room for itself."""


class SegmentFile(NamedTuple):
    """A segment: when it was last written to, and how much of the disk it takes."""

    at: float
    size: int
    path: str


def taken(size: int) -> int:
    """Bytes of the disk that a file of ``size`` takes."""
    return -(-size // _CLUSTER) * _CLUSTER


def retention(root: Path) -> list[SegmentFile]:
    """All segments below ``root``, the oldest first."""
    return sorted(_kept(root))


def make_room(root: Path, budget: int, let_go: Callable[[str], None]) -> int:
    """Remove the oldest segments below ``root`` until they fit into ``budget`` bytes; how many bytes are left then.

    ``let_go`` is told each before it goes, and raises OSError where it has to stay.
    """
    there = retention(root)
    size = sum(each.size for each in there)
    for each in there:
        if size <= budget * _LEAVE:
            break
        with suppress(OSError):
            let_go(each.path)
            Path(each.path).unlink(missing_ok=True)
            size -= each.size
            _remove_empty(Path(each.path).parent, root)
    return size


def _kept(root: Path) -> Iterator[SegmentFile]:
    for stream in streams({"": root}):
        for segment in segments(stream.directory):
            with suppress(FileNotFoundError):
                found = os.stat(segment.path)
                yield SegmentFile(found.st_mtime, taken(found.st_size), segment.path)


def _remove_empty(directory: Path, root: Path) -> None:
    with suppress(OSError):
        while directory != root:
            directory.rmdir()
            directory = directory.parent
