"""Reads one growing output file into a stream: tracks what was read and what waits."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from reconciler.engines.host.logs.blocks import LONGEST_LINE
from reconciler.engines.host.logs.cri import count_complete_bytes, first_ms
from reconciler.engines.host.logs.hole_punch import FreeRange, first_written
from reconciler.engines.host.logs.writer import Position, Writer

PIECE = 256 << 10
"""The largest number of bytes that become one block."""

PATIENCE = 3.0
"""Seconds that an incomplete line waits for its end."""

FREED_AT = 256 << 10
"""Bytes to read before they are freed: stored data are synced to disk first, which takes time."""

SHORTENED_AT = 64 << 20
"""The size at which a file is truncated if its file system cannot free a part of it."""

MOST_UNREAD = 64 << 20
"""Bytes of a file that may wait to be stored."""

LEFT_UNREAD = 16 << 20
"""Bytes, the newest, that remain of those that wait when they are too many."""

_UNSEEN = (-1, -1, -1)


class LogTail:
    """Reads the file at ``path`` into ``writer``. For one thread at a time, except ``may_have_output``.

    ``framed``: it has the log form of containers.
    """

    def __init__(self, path: str, writer: Writer, free: FreeRange, *, framed: bool = False) -> None:
        self.path = path
        self._framed = framed
        self.writer = writer
        self._free = free
        self._inode = 0
        self._offset = 0
        self._freed = 0
        self._in_parts = True
        self._seen = _UNSEEN
        self._waiting: float | None = None

    def may_have_output(self, now: float) -> bool:
        """Whether there may be new output at ``now`` (monotonic seconds); costs one ``stat``."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        return _make_file_state(stat) != self._seen or self._overdue(now)

    def take(self, now: float, ms: int, most: int, last: bool = False) -> tuple[int, int]:
        """Store up to ``most`` new bytes; with ``last`` also an incomplete line.

        Returns the number of bytes that were read and that were written. Raises OSError; what was stored before it
        remains.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._locate(file)
            try:
                return self._store(file, now, ms, most, last)
            except OSError:
                self._seen = _UNSEEN
                with suppress(OSError):
                    self._give_back(file, 0)
                raise
        finally:
            os.close(file)

    def drop_excess(self, ms: int) -> int:
        """Drop the oldest output that waits, if there is too much of it, and return the bytes. Raises OSError.

        A program that writes faster than its output can be stored must not fill the disk. The line that is cut is
        dropped too.
        """
        if os.stat(self.path).st_size - self._offset <= MOST_UNREAD:
            return 0
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._locate(file)
            begin, end = self._offset, os.fstat(file).st_size
            if end - begin <= MOST_UNREAD:
                return 0
            offset = _next_line(file, end - LEFT_UNREAD) if self._in_parts else end
            # Before the file changes: after a kill, the next daemon goes on from here.
            self.writer.move_on(ms, self._inode, offset)
            self._offset, self._waiting = offset, None
            self._give_back(file, 0)
            return offset - begin
        finally:
            os.close(file)

    def _overdue(self, now: float) -> bool:
        return self._waiting is not None and now - self._waiting >= PATIENCE

    def _locate(self, file: int) -> None:
        """Identify the file and the offset to continue from."""
        stat = os.fstat(file)
        if stat.st_ino != self._inode:
            position = self.writer.position()
            continues = _is_continuation(file, position, stat.st_ino)
            self._offset = position.offset if continues else first_written(file, stat.st_size)
            self._inode, self._freed, self._waiting = stat.st_ino, 0, None
        elif self._is_truncated(file, stat):
            self._offset = self._freed = 0

    def _store(self, file: int, now: float, ms: int, most: int, last: bool) -> tuple[int, int]:
        read = written = 0
        while read < most:
            there = os.pread(file, PIECE, self._offset)
            size = count_complete_bytes if self._framed else count_whole_bytes
            text = there[: size(there, last or self._overdue(now))]
            if not text:
                self._rest(file, now, self._offset + len(there))
                break
            time = first_ms(text, ms) if self._framed else ms
            written += self.writer.append(time, self._inode, self._offset, text, framed=self._framed)
            self._offset += len(text)
            read += len(text)
            self._waiting = None
            self._give_back(file, FREED_AT)
        return read, written

    def _rest(self, file: int, now: float, end: int) -> None:
        """Remember the rest: nothing, or an incomplete line. ``end`` is the size of the file at the last read."""
        stat = os.fstat(file)
        if stat.st_size != end:
            return
        self._seen = _make_file_state(stat)
        if self._offset >= end:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now

    def _is_truncated(self, file: int, stat: os.stat_result) -> bool:
        """Whether the program has truncated the file since, even if the file is as long again or longer.

        That is so if the file is shorter, if it changed without growing, or if the bytes before the read offset differ.
        A longer text with the same bytes there is not detected.
        """
        if stat.st_size <= self._offset:
            rewritten = self._seen[:2] == (stat.st_ino, stat.st_size) and self._seen != _make_file_state(stat)
            return stat.st_size < self._offset or (rewritten and self._offset > 0)
        return not _matches_stored_bytes(file, self.writer.position(), self._offset)

    def _give_back(self, file: int, least: int) -> None:
        """Free the stored part if it exceeds ``least`` bytes."""
        if self._offset - (self._freed if self._in_parts else 0) <= (least if self._in_parts else SHORTENED_AT):
            return
        if not self._in_parts and os.fstat(file).st_size > self._offset:
            return
        self.writer.sync()
        if self._in_parts:
            self._in_parts = self._free(file, self._freed, self._offset)
            self._freed = self._offset
        elif os.fstat(file).st_size == self._offset:
            # Output between these two calls is lost: the price on file systems that cannot free parts.
            os.ftruncate(file, 0)
            self._offset = self._freed = 0


class _FileState(NamedTuple):
    inode: int
    size: int
    modified: int


def _make_file_state(stat: os.stat_result) -> _FileState:
    return _FileState(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def count_whole_bytes(text: bytes, end: bool) -> int:
    """The number of bytes of ``text`` to store.

    These are whole lines. Without any, they are whole parts of a long line, or all at its ``end``. A part is stored
    only once more of its line exists, so a part that fills a block is known to be split.
    """
    lines = text.rfind(b"\n") + 1
    return lines or (len(text) if end else max(0, len(text) - 1) // LONGEST_LINE * LONGEST_LINE)


def _next_line(file: int, offset: int) -> int:
    """The beginning of the next line after ``offset``, or ``offset`` within a long one."""
    return offset + os.pread(file, PIECE, offset).find(b"\n") + 1


def _is_continuation(file: int, position: Position, inode: int) -> bool:
    """Whether an open file is the one that was read up to ``position``, and not another file with the same inode."""
    return (
        position.inode == inode
        and os.fstat(file).st_size >= position.offset
        and _matches_stored_bytes(file, position, position.offset)
    )


def _matches_stored_bytes(file: int, position: Position, offset: int) -> bool:
    """Whether the bytes before ``offset`` equal the stored ones, or were freed since."""
    if position.offset != offset:
        return True
    there = os.pread(file, len(position.seen), offset - len(position.seen))
    return len(there) == len(position.seen) and all(
        now in (0, before) for now, before in zip(there, position.seen, strict=True)
    )
