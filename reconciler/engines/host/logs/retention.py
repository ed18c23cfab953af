"""Retention of a location's logs: the disk budget, the retention of removed replicas, and the order of removal."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.logs.segments import Stream, list_segments, list_streams
from reconciler.times import FIRST_DAY, ExpiryTime

_CLUSTER = 4096
_FOLDERS = 2 * _CLUSTER
"""Bytes that the directories of a stream occupy: its own and that of its replica."""
MOST_GONE = 100
"""The number of removed replicas of a workload whose logs are retained: the newest ones."""
_LEAVE = 0.95
"""The share of the budget that remains used, so that not every new line triggers a removal."""


class SegmentFile(NamedTuple):
    """A segment: the time of its last write, its bytes on disk, and its path."""

    at: float
    size: int
    path: str


def disk_usage(size: int) -> int:
    """Bytes on disk of a file of ``size``."""
    return -(-size // _CLUSTER) * _CLUSTER


def list_segment_files(root: Path) -> list[SegmentFile]:
    """All segments below ``root``, the oldest first."""
    return sorted(_stored_segments(root))


def make_room(root: Path, budget: int, before_removal: Callable[[str], None]) -> int:
    """Remove the oldest segments below ``root`` until they fit into ``budget`` bytes; return the remaining bytes.

    ``before_removal`` is called before each removal, and raises OSError if the segment must stay.
    """
    there = list_segment_files(root)
    size = sum(file.size for file in there)
    for segment_file in there:
        if size <= budget * _LEAVE:
            break
        with suppress(OSError):
            before_removal(segment_file.path)
            Path(segment_file.path).unlink(missing_ok=True)
            size -= segment_file.size
            _remove_empty(Path(segment_file.path).parent, root)
    return size


def expire_logs(root: Path, expiry: ExpiryTime, seconds: float, followed: Collection[str]) -> list[Stream]:
    """Remove logs of removed replicas: those last written ``seconds`` ago, and all but the newest MOST_GONE.

    ``followed`` are the directories of streams that are still written. Returns the streams whose time was over.
    """
    gone: dict[tuple[str, str, str], dict[str, list[Stream]]] = {}
    for stream in list_streams({"": root}):
        replicas = gone.setdefault((stream.gvc, stream.workload, stream.container), {})
        if stream.directory not in followed:
            replicas.setdefault(stream.replica, []).append(stream)
    over, surplus = list[Stream](), list[Stream]()
    for replicas in gone.values():
        ended = sorted(((_last_written(replica), replica) for replica in replicas.values()), reverse=True)
        for position, (at, removable) in enumerate(ended):
            if _is_over(expiry, at, seconds):
                over += removable
            elif position >= MOST_GONE:
                surplus += removable
    for stream in surplus:
        _remove_stream(stream, root)
    return [stream for stream in over if _remove_stream(stream, root)]


def _is_over(expiry: ExpiryTime, at: float, seconds: float) -> bool:
    return at >= FIRST_DAY and expiry.is_over(at + seconds, at)


def _last_written(replica_streams: list[Stream]) -> float:
    times = [file.at for stream in replica_streams for file in _list_stream_files(stream)]
    return max(times, default=0.0)


def _remove_stream(stream: Stream, root: Path) -> bool:
    """Whether the logs are gone; what cannot be removed now is tried again."""
    with suppress(OSError):
        for segment in list_segments(stream.directory):
            Path(segment.path).unlink(missing_ok=True)
        _remove_empty(Path(stream.directory), root)
        return True
    return False


def _stored_segments(root: Path) -> Iterator[SegmentFile]:
    for stream in list_streams({"": root}):
        folders = _FOLDERS
        for file in _list_stream_files(stream):
            yield file._replace(size=file.size + folders)
            folders = 0


def _list_stream_files(stream: Stream) -> Iterator[SegmentFile]:
    for segment in list_segments(stream.directory):
        with suppress(FileNotFoundError):
            stat = os.stat(segment.path)
            yield SegmentFile(stat.st_mtime, disk_usage(stat.st_size), segment.path)


def _remove_empty(directory: Path, root: Path) -> None:
    with suppress(OSError):
        while directory != root:
            directory.rmdir()
            directory = directory.parent
