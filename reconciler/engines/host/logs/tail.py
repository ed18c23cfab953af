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


_UNSEEN = (-1, -1, -1)


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
        self._seen = _UNSEEN
        self._waiting: float | None = None

    def stirs(self, now: float) -> bool:
        """Whether there may be something to store at ``now`` (monotonic seconds); costs one look at the file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return _state(found) != self._seen or self._overdue(now)

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
                self._seen = _UNSEEN
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
        elif self._is_truncated(file, found):
            self._offset = self._freed = 0

    def _stored(self, file: int, now: float, ms: int, most: int, last: bool) -> tuple[int, int]:
        read = written = 0
        while read < most:
            there = os.pread(file, PIECE, self._offset)
            text = there[: whole(there, last or self._overdue(now))]
            if not text:
                self._rest(file, now, self._offset + len(there))
                break
            written += self.writer.append(ms, self._inode, self._offset, text)
            self._offset += len(text)
            read += len(text)
            self._waiting = None
            self._give_back(file, FREED_AT)
        return read, written

    def _rest(self, file: int, now: float, end: int) -> None:
        """Remember what is left: nothing, or the begin of a line. ``end`` is where the file ended just now."""
        found = os.fstat(file)
        if found.st_size != end:
            return
        self._seen = _state(found)
        if self._offset >= end:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now

    def _is_truncated(self, file: int, found: os.stat_result) -> bool:
        """Whether the program has truncated the file since, though it may be as long again or longer by now.

        What it has written anew is another text, or as long as the old one without having grown. Not noticed: a longer
        text that begins as the old one ended.
        """
        if found.st_size <= self._offset:
            rewritten = self._seen[:2] == (found.st_ino, found.st_size) and self._seen != _state(found)
            return found.st_size < self._offset or (rewritten and self._offset > 0)
        return not _agrees(file, self.writer.position(), self._offset)

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


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def whole(text: bytes, end: bool) -> int:
    """How much of ``text`` to store: whole lines; without any, whole parts of a long one, or at its ``end`` all.

    A part is stored only once more of its line is there, so that one which fills a block is known to be cut.
    """
    lines = text.rfind(b"\n") + 1
    return lines or (len(text) if end else max(0, len(text) - 1) // LONGEST_LINE * LONGEST_LINE)


def _goes_on(file: int, known: Position, inode: int) -> bool:
    """Whether an open file is the one that was read to ``known``, and not another with its number."""
    return known.inode == inode and os.fstat(file).st_size >= known.offset and _agrees(file, known, known.offset)


def _agrees(file: int, known: Position, offset: int) -> bool:
    """Whether what stands before ``offset`` is what was stored of it, or was freed since."""
    if known.offset != offset:
        return True
    there = os.pread(file, len(known.seen), offset - len(known.seen))
    return len(there) == len(known.seen) and all(
        now in (0, before) for now, before in zip(there, known.seen, strict=True)
    )
