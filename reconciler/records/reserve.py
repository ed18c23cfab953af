"""Room held on the disk of the state directory, given up so that deletes can be recorded when it is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE = "reserve"
"""The name of the file in the state directory."""

RESERVE_BYTES = 2 << 20
"""A run that deletes ten workloads writes 345 KB to the log of the records, where each changed page is written whole.
This is enough for five of them, and no loss on any disk."""

ROOM = 3
"""The file is made where so many times its size is free, and then the disk counts as full no longer."""
SHARE = 4
"""A small disk counts as full no longer where one part in so many is free beside the reserve's size."""

LOW_BYTES = RESERVE_BYTES // 32
"""With less than this left a disk counts as full, before anything fails for it."""


class DiskReserve:
    """``full`` says whether the disk counts as full. ``path`` is None for records in memory, whose disk never is.

    A file of no size says that the room was given up, so that the next process knows it too.
    """

    def __init__(self, path: Path | None) -> None:
        self.full = False
        self._path = path
        self._given_up = False

    def give_up(self) -> None:
        """The disk is full: let the room go. Nothing happens where none is held."""
        self.full = True
        with suppress(OSError):
            if self._size():
                self._resize(0)
                self._given_up = True

    def was_given_up(self) -> bool:
        """Whether the room was let go since this was asked last: what failed for want of it is worth another try."""
        given_up, self._given_up = self._given_up, False
        return given_up

    def restore(self) -> None:
        """Look how much room there is, and hold some where none is held and there is enough."""
        if self._path is None:
            return
        with suppress(OSError):
            found, size = os.statvfs(self._path.parent), self._size()
            free = found.f_bavail * found.f_frsize
            share = RESERVE_BYTES + found.f_blocks * found.f_frsize // SHARE
            if free >= min(ROOM * RESERVE_BYTES, share):
                self.full = False
                if size != RESERVE_BYTES and free >= ROOM * RESERVE_BYTES:
                    self._resize(RESERVE_BYTES)
            elif size == 0 or (size and free < LOW_BYTES):
                self.full = True

    def _size(self) -> int | None:
        """Bytes that are held; None where there is no file."""
        try:
            return self._path.lstat().st_size if self._path is not None else None
        except FileNotFoundError:
            return None

    def _resize(self, size: int) -> None:
        assert self._path is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o600), "wb") as file:
            os.ftruncate(file.fileno(), 0)
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
