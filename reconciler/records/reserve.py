"""Disk space reserved in the state directory, which is released on a full disk so that deletes can be recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from reconciler.errors import DiskFull

T = TypeVar("T")

FILE = "reserve"
"""The name of the file in the state directory."""

RESERVE_BYTES = 2 << 20
"""A run that deletes ten workloads writes 345 KB to the log of the records, which contains every changed page in full.
This reserve is enough for five such runs, and no loss on any disk."""

REQUESTS_BYTES = RESERVE_BYTES // 4
"""The part that is released only for requests of operators: what filled the disk takes the rest once it is free."""

ROOM = 3
"""The reserve is created if this multiple of its size is free; the disk then no longer counts as full."""
SHARE = 4
"""A small disk no longer counts as full if one part in this many is free in addition to the size of the reserve."""

LOW_BYTES = RESERVE_BYTES // 32
"""With less free space than this, a disk counts as full before any write fails."""


def retry_with_reserve(reserve: DiskReserve, act: Callable[[], T]) -> T:
    """The result of ``act``, which makes room on a full disk, or stops what fills it: it may use all of the reserve.

    Raises what ``act`` raises.
    """
    try:
        return act()
    except DiskFull:
        if not reserve.release_rest():
            raise
    return act()


class DiskReserve:
    """``full`` is whether the disk counts as full. ``path`` is None for records in memory, where it never does.

    A smaller file records that the reserve was released, so that the next process knows it too.
    """

    def __init__(self, path: Path | None) -> None:
        self.full = False
        self._path = path
        self._released = False

    def release(self) -> None:
        """Release the reserve because the disk is full, but the part for requests. Does nothing if there is none."""
        self.full = True
        self._released |= self._shrink(REQUESTS_BYTES)

    def release_rest(self) -> bool:
        """Release all of it, for a request that makes room or stops what fills the disk; False if there is none."""
        return self._shrink(0)

    def was_released(self) -> bool:
        """Whether the reserve was released since the last call: work that failed for lack of space can be retried."""
        released, self._released = self._released, False
        return released

    def restore(self) -> None:
        """Check the free space, and reserve some if there is enough and none is reserved."""
        if self._path is None:
            return
        with suppress(OSError):
            statvfs_result, size = os.statvfs(self._path.parent), self._size()
            free = statvfs_result.f_bavail * statvfs_result.f_frsize
            share = RESERVE_BYTES + statvfs_result.f_blocks * statvfs_result.f_frsize // SHARE
            if free >= min(ROOM * RESERVE_BYTES, share):
                self.full = False
                if size != RESERVE_BYTES and free >= ROOM * RESERVE_BYTES:
                    self._resize(RESERVE_BYTES)
            elif size is not None and (size < RESERVE_BYTES or free < LOW_BYTES):
                self.full = True

    def _size(self) -> int | None:
        """Bytes of the reserve; None if there is no file."""
        try:
            return self._path.lstat().st_size if self._path is not None else None
        except FileNotFoundError:
            return None

    def _shrink(self, size: int) -> bool:
        """Give up all but ``size`` bytes; False if there are no more."""
        with suppress(OSError):
            if (self._size() or 0) > size:
                self._resize(size)
                return True
        return False

    def _resize(self, size: int) -> None:
        assert self._path is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o600), "wb") as file:
            present = os.fstat(file.fileno()).st_size
            os.ftruncate(file.fileno(), min(size, present))
            if size > present:
                os.ftruncate(file.fileno(), 0)
                os.posix_fallocate(file.fileno(), 0, size)
