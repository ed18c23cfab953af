"""The log form of containers: conmon and the kubelet write `TIME stdout|stderr P|F TEXT`, P for a part of a line.

Blocks contain such output as it was written, so that offsets in the file stay true; it is decoded when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from reconciler.engines.host.logs.blocks import LONGEST_LINE, MARK, Block

_LINE = re.compile(
    rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([PF])(?: (.*))?$",
    re.MULTILINE,
)
_PART, _PART_WORD = b"P", b" P "
_LONGEST_RAW = LONGEST_LINE + (LONGEST_LINE >> 3)
"""Bytes of the parts of a line, with their times, from which on they are stored without its end."""


class _Line(NamedTuple):
    ms: int
    text: bytes


def count_complete_bytes(text: bytes, end: bool) -> int:
    """The number of bytes of ``text`` to store: lines of which every part is there.

    Without any, the parts of a very long line, or all at its ``end``.
    """
    lines = text.rfind(b"\n") + 1
    if _PART_WORD not in text:
        return lines or (len(text) if end else 0)
    partial: set[bytes] = set()
    at = whole = 0
    while at < lines:
        after = text.index(b"\n", at) + 1
        _update_partial(partial, text[at : after - 1])
        at = after
        whole = whole if partial else at
    return whole or (len(text) if end else lines if lines > _LONGEST_RAW else 0)


def is_partial(text: bytes) -> bool:
    """Whether ``text`` ends in the middle of a line of a stream."""
    partial: set[bytes] = set()
    if _PART_WORD in text:
        for line in text.split(b"\n"):
            _update_partial(partial, line)
    return bool(partial) or not text.endswith(b"\n")


def first_ms(text: bytes, default: int) -> int:
    """The time of the first line, in milliseconds since the epoch; ``default`` if no line has one."""
    match = _LINE.search(text)
    ms = None if match is None else _parse_milliseconds(match[1])
    return default if ms is None else ms


def decode_block(block: Block) -> Sequence[Block]:
    """``block`` as blocks of plain lines, one for each time; itself if it has plain lines."""
    if not block.is_framed:
        return (block,)
    raw = block.text()
    lines, rest = _join_parts(block.ms, raw)
    # Of a line that goes on in the next block, the end is open; a very long one shows that.
    rest = [line._replace(text=line.text + (MARK if len(line.text) >= LONGEST_LINE else b"")) for line in rest]
    grouped: list[tuple[int, list[bytes]]] = []
    for line in (*lines, *rest):
        if not grouped or grouped[-1][0] != line.ms:
            grouped.append((line.ms, []))
        grouped[-1][1].append(line.text)
    blocks = [_make_plain_block(block, ms, b"\n".join(texts) + b"\n", not at) for at, (ms, texts) in enumerate(grouped)]
    if blocks and is_partial(raw):
        blocks[-1] = _make_plain_block(block, blocks[-1].ms, blocks[-1].stored[:-1], len(blocks) == 1)
    return blocks


def plain_lines(text: bytes) -> list[bytes]:
    """The lines of a part of an output file, without times; what has another form is a line as it is."""
    return [line.text for line in _join_parts(0, text)[0]]


def _make_plain_block(block: Block, ms: int, text: bytes, first: bool) -> Block:
    continues = first and block.continues
    return Block(ms, block.inode, block.offset, len(text), text, Block.flags_of(continues=continues))


def _join_parts(ms: int, text: bytes) -> tuple[list[_Line], list[_Line]]:
    """The lines in ``text`` with their parts joined, and those that go on after it.

    A line has the time of its first part; what has another form is a line as it is, with the time before it.
    """
    lines: list[_Line] = []
    partial: dict[bytes, tuple[int, list[bytes]]] = {}
    for raw in text.removesuffix(b"\n").split(b"\n") if text else ():
        match = _LINE.fullmatch(raw)
        time = None if match is None else _parse_milliseconds(match[1])
        if match is None or time is None:
            lines.append(_Line(ms, raw))
            continue
        ms = time
        begun, parts = partial.pop(match[2], (ms, []))
        parts.append(match[4] or b"")
        if match[3] == _PART:
            partial[match[2]] = (begun, parts)
        else:
            lines.append(_Line(begun, b"".join(parts)))
    return lines, [_Line(begun, b"".join(parts)) for begun, parts in partial.values()]


def _update_partial(partial: set[bytes], line: bytes) -> None:
    """Remember the streams of which a line has begun."""
    if (match := _LINE.fullmatch(line)) is not None:
        (partial.add if match[3] == _PART else partial.discard)(match[2])


def _parse_milliseconds(time: bytes) -> int | None:
    try:
        ms = int(datetime.fromisoformat(time.decode()).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return ms if ms >= 0 else None
