"""Log blocks as bytes: one read of a container's output, with its time and its offset in the output.

A block has a head (44 bytes, little endian: magic, CRC-32 of all that follows except the tail, milliseconds, inode and
offset of the output, bytes before and after compression, flags), the output, and a tail (8 bytes: size of the block,
magic). The tail makes it possible to read blocks backwards from the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgspec

LONGEST_LINE = 64 << 10
"""Bytes; a longer line is shown in parts of this size."""

MARK = "…".encode()
"""Marks where a line was split: at the end of a part and at the beginning of the next one."""

LARGEST = 1 << 20
"""The largest size of a block in bytes, before compression."""

LEVEL = 1
"""Compression level: twice as fast as the default, for a quarter more disk space."""

_HEAD = struct.Struct("<4sIQQQIII")
_TAIL = struct.Struct("<I4s")
_CHECKED = 8
"""Bytes of the head that the checksum does not cover."""
_BEGIN, _END = b"RLB1", b"1BLR"
_DEFLATED, _CONTINUES, _FRAMED = 1, 2, 4
_WORTHWHILE = 128
"""The least number of bytes that are compressed."""

TAIL = _TAIL.size
SMALLEST = _HEAD.size + TAIL


class Block(msgspec.Struct, frozen=True, gc=False):
    """Bytes that were read at ``ms`` (since the epoch) from the file ``inode`` at ``offset``: ``length`` of them.

    ``stored`` contains them, compressed if ``flags`` indicate it. A block of length 0 only records the read position.
    """

    ms: int
    inode: int
    offset: int
    length: int
    stored: bytes
    flags: int = 0

    @property
    def end(self) -> int:
        """The offset at which the next read started."""
        return self.offset + self.length

    @property
    def continues(self) -> bool:
        """Whether the previous block ended in the middle of a line."""
        return bool(self.flags & _CONTINUES)

    @property
    def is_framed(self) -> bool:
        """Whether the output has the log form of containers (see cri.py)."""
        return bool(self.flags & _FRAMED)

    @staticmethod
    def flags_of(*, continues: bool, framed: bool = False) -> int:
        """The flags of a block that is not compressed."""
        return (_CONTINUES if continues else 0) | (_FRAMED if framed else 0)

    def text(self) -> bytes:
        """The output of the container."""
        return zlib.decompress(self.stored, bufsize=self.length) if self.flags & _DEFLATED else self.stored

    def lines(self, text: bytes | None = None) -> list[bytes]:
        """The output of the container as lines; ``text`` is that of the block, if the caller has it."""
        return lines_of(self.text() if text is None else text, self.continues)


def make_block(ms: int, inode: int, offset: int, text: bytes, flags: int = 0) -> Block:
    """``text`` as a block; compressed if that makes it smaller."""
    if len(text) >= _WORTHWHILE and len(small := zlib.compress(text, LEVEL)) < len(text):
        return Block(ms, inode, offset, len(text), small, flags | _DEFLATED)
    return Block(ms, inode, offset, len(text), text, flags)


def pack_block(block: Block) -> bytes:
    """Encode ``block`` as bytes."""
    fields = (block.ms, block.inode, block.offset, block.length, len(block.stored), block.flags)
    head = _HEAD.pack(_BEGIN, 0, *fields)
    checked = zlib.crc32(block.stored, zlib.crc32(head[_CHECKED:]))
    whole = len(head) + len(block.stored) + TAIL
    return b"".join((_HEAD.pack(_BEGIN, checked, *fields), block.stored, _TAIL.pack(whole, _END)))


def unpack_block(content: bytes, at: int = 0) -> Block | None:
    """The block at ``at``; None if there is no complete and valid one."""
    if len(content) - at < SMALLEST:
        return None
    begin, checked, ms, inode, offset, length, size, flags = _HEAD.unpack_from(content, at)
    if begin != _BEGIN or length > LARGEST or at + SMALLEST + size > len(content):
        return None
    stored = content[at + _HEAD.size : at + _HEAD.size + size]
    if zlib.crc32(stored, zlib.crc32(content[at + _CHECKED : at + _HEAD.size])) != checked:
        return None
    if _TAIL.unpack_from(content, at + _HEAD.size + size) != (SMALLEST + size, _END):
        return None
    return Block(ms, inode, offset, length, stored, flags)


def size_of(block: Block) -> int:
    """Bytes of ``block`` in a segment."""
    return SMALLEST + len(block.stored)


def size_before(tail: bytes) -> int:
    """The size of the block whose last bytes are ``tail``; 0 if no block ends there."""
    size, end = _TAIL.unpack(tail)
    return int(size) if end == _END else 0


def all_in(content: bytes, at: int = 0) -> Iterator[tuple[Block, int]]:
    """Every valid block from ``at`` on, each with the offset of the next; skips damaged parts."""
    while at >= 0:
        block = unpack_block(content, at)
        if block is None:
            at = content.find(_BEGIN, at + 1)
        else:
            at += size_of(block)
            yield block, at


def lines_of(text: bytes, continues: bool) -> list[bytes]:
    """The lines of ``text`` without line ends, long lines in parts; ``continues`` as for the block.

    A part begins with MARK if it continues the previous part, and ends with MARK if another part follows.
    """
    if continues and text.startswith(b"\n"):
        text, continues = text[1:], False
    if not text:
        return []
    lines = text.removesuffix(b"\n").split(b"\n")
    if b"\r" in text:
        lines = [line.removesuffix(b"\r") for line in lines]
    cut = not text.endswith(b"\n") and len(lines[-1]) % LONGEST_LINE == 0
    if max(map(len, lines)) > LONGEST_LINE:
        lines = [part for line in lines for part in _split_line(line)]
    if continues:
        lines[0] = MARK + lines[0]
    if cut:
        lines[-1] += MARK
    return lines


def _split_line(line: bytes) -> Iterator[bytes]:
    for at in range(0, max(len(line), 1), LONGEST_LINE):
        before, after = at > 0, at + LONGEST_LINE < len(line)
        yield (MARK if before else b"") + line[at : at + LONGEST_LINE] + (MARK if after else b"")
