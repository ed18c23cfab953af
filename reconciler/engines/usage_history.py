"""What workloads used in the last day: a point for each minute in which something ran, in a file of fixed size each."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from reconciler.engines.reading import LocationReader
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory

FOLDER = "usage-history"
"""The folder of these files in the directory of a location."""
MINUTE, MINUTES = 60, 1440
"""Seconds of a point, and the points of a file: a day."""
DAY = float(MINUTE * MINUTES)
_HEADER = b"usage 1\n"
_POINT = struct.Struct("<dffffHH")
_MOST_REPLICAS = 65_535
_SIZE = len(_HEADER) + MINUTES * _POINT.size


class UsagePoint(msgspec.Struct, frozen=True, gc=False):
    """What all replicas of a workload at a location used in the minute before ``at`` (seconds since the epoch).

    ``cpu`` is in millicores, ``memory`` in bytes at its end, ``requests`` in requests a second, ``latency`` in
    milliseconds until the answer, on average; None is unknown. ``ready`` replicas were ready of those ``wanted``.
    """

    at: float
    cpu: float | None = None
    memory: float | None = None
    requests: float | None = None
    latency: float | None = None
    ready: int = 0
    wanted: int = 0


class UsageRow(NamedTuple):
    """What a workload used in a minute at a location."""

    key: Key
    location: str
    point: UsagePoint


@runtime_checkable
class SupportsUsageHistory(LocationReader, Protocol):
    """A reader of what workloads used in the last day."""

    def usage_history(self, key: Key) -> Sequence[UsagePoint]:
        """The points of a workload, oldest first; none of one that did not run. Blocks. Raises PermissionError."""


class UsageHistory:
    """The files below ``root``. A point takes the place of that of the day before; nothing waits for the disk.

    What cannot be written is missing later, and harms nothing: this is information for people.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, points: Iterable[tuple[Key, UsagePoint]]) -> None:
        """Write a point of each workload. Blocks."""
        for key, point in points:
            with suppress(OSError):
                self._write(self._path(key), point)

    def read(self, key: Key, now: float) -> list[UsagePoint]:
        """The points of ``key`` of the day until ``now``, oldest first. Raises PermissionError."""
        try:
            content = self._path(key).read_bytes()
        except PermissionError:
            raise
        except OSError:
            return []
        if not content.startswith(_HEADER):
            return []
        body = content[len(_HEADER) :]
        whole = body[: len(body) // _POINT.size * _POINT.size]
        points = (
            _decode_point(values) for values in _POINT.iter_unpack(whole) if now - DAY < values[0] <= now + MINUTE
        )
        return sorted(points, key=lambda point: point.at)

    def forget(self, key: Key) -> None:
        """Delete the points of a workload that is gone: one of the same name begins without them."""
        path = self._path(key)
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()

    def retain(self, keys: Collection[Key]) -> None:
        """Delete the points of all workloads but ``keys``. Blocks."""
        for path in self._list_files():
            key = Key(Kind.WORKLOAD, path.parent.name, path.name)
            if key not in keys:
                self.forget(key)

    def sweep(self) -> None:
        """Delete what has no point of the last day. Blocks."""
        for path in self._list_files():
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - DAY:
                    self.forget(Key(Kind.WORKLOAD, path.parent.name, path.name))

    def _list_files(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from [*list_paths(self._root, "*/*")]

    def _path(self, key: Key) -> Path:
        return self._root / key.gvc / key.name

    def _write(self, path: Path, point: UsagePoint) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:
            make_directory(path.parent)
            file = os.open(path, flags, 0o600)
        try:
            if os.pread(file, len(_HEADER), 0) != _HEADER or os.fstat(file).st_size != _SIZE:
                os.ftruncate(file, 0)
                os.ftruncate(file, _SIZE)  # without blocks until there are points
                os.pwrite(file, _HEADER, 0)
            place = int(point.at // MINUTE) % MINUTES
            os.pwrite(file, _encode_point(point), len(_HEADER) + place * _POINT.size)
        finally:
            os.close(file)


def _encode_point(point: UsagePoint) -> bytes:
    amounts = (point.cpu, point.memory, point.requests, point.latency)
    counts = (min(point.ready, _MOST_REPLICAS), min(point.wanted, _MOST_REPLICAS))
    return _POINT.pack(point.at, *(math.nan if amount is None else amount for amount in amounts), *counts)


def _decode_point(values: tuple[float, ...]) -> UsagePoint:
    at, *amounts, ready, wanted = values
    cpu, memory, requests, latency = (None if math.isnan(amount) else amount for amount in amounts)
    return UsagePoint(at, cpu, memory, requests, latency, int(ready), int(wanted))
