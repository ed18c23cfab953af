"""One file that a container appends to, on its way into a stream: what was read of it, and what waits."""

from __future__ import annotations

import os
from contextlib import suppress

from reconciler.engines.host.logs.blocks import LONGEST_LINE
from reconciler.engines.host.logs.hole_punch import FreeRange, first_written
from reconciler.engines.host.logs.writer import Position, Writer

PIECE = 256 << 10
"""Bytes that become one block, at most."""

PATIENCE = 3.0
"""Seconds for which a line without an end waits for the rest of it."""

FREED_AT = 256 << 10
"""Bytes that are read before they are freed: what is stored is made durable first, which takes its time."""

SHORTENED_AT = 64 << 20
"""Bytes at which a file is emptied where its file system cannot free a part of it."""


class LogTail:
    """Follows the file at ``path`` into ``writer``. To be used by one thread at a time, ``stirs`` aside."""

    def __init__(self, path: str, writer: Writer, free: FreeRange) -> None:
        self.path = path
        self.writer = writer
        self._free = free
        self._inode = 0
        self._offset = 0
        self._freed = 0
        self._in_parts = True
        self._seen = (-1, -1)
        self._waiting: float | None = None

    def stirs(self, now: float) -> bool:
        """Whether there may be something to store at ``now`` (monotonic seconds); costs one look at the file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_ino, found.st_size) != self._seen or self._overdue(now)

    def take(self, now: float, ms: int, most: int, last: bool = False) -> tuple[int, int]:
        """Store up to ``most`` bytes that are new; with ``last`` also a line without an end.

        How many bytes were read, and how many were written for them. Raises OSError; what was stored until then is.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._look(file)
            try:
                return self._stored(file, now, ms, most, last)
            except OSError:
                with suppress(OSError):
                    self._give_back(file, 0)
                raise
        finally:
            os.close(file)

    def _overdue(self, now: float) -> bool:
        return self._waiting is not None and now - self._waiting >= PATIENCE

    def _look(self, file: int) -> None:
        """Find out which file this is and where to go on in it."""
        found = os.fstat(file)
        if found.st_ino != self._inode:
            known = self.writer.position()
            goes_on = _goes_on(file, known, found.st_ino)
            self._offset = known.offset if goes_on else first_written(file, found.st_size)
            self._inode, self._freed, self._waiting = found.st_ino, 0, None
        elif found.st_size < self._offset:
            self._offset = self._freed = 0

    def _stored(self, file: int, now: float, ms: int, most: int, last: bool) -> tuple[int, int]:
        read = written = 0
        size = os.fstat(file).st_size
        while read < most:
            text = os.pread(file, PIECE, self._offset)
            text = text[: whole(text, last or self._overdue(now))]
            if not text:
                break
            written += self.writer.append(ms, self._inode, self._offset, text)
            self._offset += len(text)
            read += len(text)
            self._waiting = None
            self._give_back(file, FREED_AT)
        self._rest(now, size, read < most)
        return read, written

    def _rest(self, now: float, size: int, all_read: bool) -> None:
        """Remember what is left: nothing, the begin of a line, or more than there was time for."""
        if not all_read:
            return
        self._seen = (self._inode, size)
        if self._offset >= size:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now

    def _give_back(self, file: int, least: int) -> None:
        """Free what is stored, if it is more than ``least`` bytes."""
        if self._offset - (self._freed if self._in_parts else 0) <= (least if self._in_parts else SHORTENED_AT):
            return
        if not self._in_parts and os.fstat(file).st_size > self._offset:
            return
        self.writer.sync()
        if self._in_parts:
            self._in_parts = self._free(file, self._freed, self._offset)
            self._freed = self._offset
        elif os.fstat(file).st_size == self._offset:
            # What is written between these two calls is lost: the price where parts cannot be freed.
            os.ftruncate(file, 0)
            self._offset = self._freed = 0


def whole(text: bytes, end: bool) -> int:
    """How much of ``text`` to store: whole lines; without any, whole parts of a long one, or at its ``end`` all."""
    lines = text.rfind(b"\n") + 1
    return lines or (len(text) if end else len(text) // LONGEST_LINE * LONGEST_LINE)


def _goes_on(file: int, known: Position, inode: int) -> bool:
    """Whether an open file is the one that was read to ``known``, and not another with its number."""
    if known.inode != inode or os.fstat(file).st_size < known.offset:
        return False
    there = os.pread(file, len(known.seen), known.offset - len(known.seen))
    return len(there) == len(known.seen) and all(
        now in (0, before) for now, before in zip(there, known.seen, strict=True)
    )
