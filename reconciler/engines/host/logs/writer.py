"""Writes the segments of one stream, and derives the read position of its output from them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.logs.blocks import Block, make_block, pack_block
from reconciler.engines.host.logs.cri import is_partial
from reconciler.engines.host.logs.segments import Segment, iterate_backward, list_segments, make_segment, valid_end
from reconciler.private_files import make_directory

LARGEST = 8 << 20
"""Bytes after which a new segment starts."""

LONGEST = 24 * 3600 * 1000
"""Milliseconds after which a new segment starts."""

STEP = 5_000
"""Milliseconds that the clock may be set back without a new segment; blocks then repeat the last time."""

_COMPARED = 64


class Position(msgspec.Struct, frozen=True):
    """The read position in the file ``inode``; ``seen`` are the bytes before ``offset``, ``open`` means mid-line."""

    inode: int = 0
    offset: int = 0
    seen: bytes = b""
    open: bool = False


class Writer:
    """Appends to the stream in ``directory``. Methods that write raise OSError, and then have written nothing."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._segment: Segment | None = None
        self._size = 0
        self._last = 0
        self._known = False
        self._fresh: list[str] = []
        self._position = Position()

    @property
    def path(self) -> str:
        """The path of the current segment; ``""`` if there is none."""
        return "" if self._segment is None else self._segment.path

    def position(self) -> Position:
        """The read position, from the last valid block. Cuts off a block that a killed writer left incomplete."""
        if not self._known:
            self._learn()
        return self._position

    def append(self, ms: int, inode: int, offset: int, text: bytes, *, framed: bool = False) -> int:
        """Append bytes that were read at ``ms`` from the file ``inode`` at ``offset``; return the bytes written.

        ``framed``: they have the log form of containers.
        """
        position = self.position()
        goes_on = position.open and (position.inode, position.offset) == (inode, offset)
        flags = Block.flags_of(continues=goes_on, framed=framed)
        return self._write(make_block(self._time(ms), inode, offset, text, flags), text)

    def begin_anew(self, ms: int) -> int:
        """Start a new segment that records the read position, so that old ones can be removed; return the bytes
        written."""
        position = self.position()
        self._follow(self._time(ms))
        return self._write(
            make_block(self._time(ms), position.inode, position.offset, b"", Block.flags_of(continues=position.open)),
            b"",
        )

    def move_on(self, ms: int, inode: int, offset: int) -> int:
        """Record that reading goes on at ``offset`` of the file ``inode``, without what lies before; return the bytes
        written."""
        self.position()
        return self._write(make_block(self._time(ms), inode, offset, b"", Block.flags_of(continues=False)), b"")

    def sync(self) -> None:
        """Sync all written data to disk."""
        for path in (self.path, *self._fresh):
            with suppress(FileNotFoundError):
                _sync_file(path)
        self._fresh.clear()

    def _learn(self) -> None:
        log_segments = list_segments(self.directory)
        if log_segments:
            self._segment = log_segments[-1]
            self._size = valid_end(self.path)
            if os.stat(self.path).st_size > self._size:
                os.truncate(self.path, self._size)
            last = next(
                (
                    log_block
                    for part in reversed(log_segments)
                    for log_block in iterate_backward(part.path, valid_end(part.path))
                ),
                None,
            )
            if last is not None:
                self._last = last.ms
                self._position = _position_after(last, last.text())
        self._known = True

    def _time(self, ms: int) -> int:
        return self._last if ms < self._last <= ms + STEP else ms

    def _follow(self, ms: int) -> Segment:
        """Start the next segment; the current one is synced to disk first."""
        if self._segment is not None:
            self.sync()
        self._segment = following = make_segment(self.directory, self._segment.number + 1 if self._segment else 1, ms)
        self._size = 0
        return following

    def _write(self, new_block: Block, text: bytes) -> int:
        into = self._segment
        if into is None or self._is_over(into, new_block.ms):
            into = self._follow(new_block.ms)
        content = pack_block(new_block)
        if not self._size:
            self._create(into)
        _append_content(into.path, self._size, content)
        self._size += len(content)
        self._last = new_block.ms
        self._position = _position_after(new_block, text)
        return len(content)

    def _is_over(self, into: Segment, ms: int) -> bool:
        """Whether output that is read at ``ms`` needs a new segment; the current file may also have been removed."""
        gone = self._size > 0 and not os.path.exists(into.path)
        return gone or self._size >= LARGEST or ms - into.first >= LONGEST or ms < self._last

    def _create(self, into: Segment) -> None:
        directory = Path(self.directory)
        make_directory(directory)
        self._fresh = [str(path) for path in (directory, *list(directory.parents)[:3])]
        Path(into.path).touch(0o600)


def _position_after(last: Block, text: bytes) -> Position:
    if last.is_framed and last.length:
        middle = is_partial(text)
    else:
        middle = not text.endswith(b"\n") if last.length else last.continues
    return Position(last.inode, last.end, text[-_COMPARED:] if last.length else b"", middle)


def _append_content(path: str, size: int, content: bytes) -> None:
    """Append all of ``content`` to a file of ``size`` bytes, or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(file, content[written:], size + written)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _sync_file(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
