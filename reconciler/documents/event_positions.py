"""The positions of the values of a file, and where its scalars end, from the events of the parser."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from reconciler.documents.event_stream import ENDS, EventStream
from reconciler.documents.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    is_empty,
)
from reconciler.documents.fault_sink import get_event_position
from reconciler.documents.limits import LIMITS
from reconciler.documents.positions import Parts, Place, Pointer, Position, Positions, add_place
from reconciler.documents.scalars import NUMERIC, WORDS


def record_positions(stream: EventStream, skipped: int, places: Positions) -> bool:
    """Record the positions of the document after ``skipped`` more; False if it is missing or unreadable."""
    with suppress(*ENDS):
        for _ in range(skipped):
            stream.document()
        root = stream.document()
        if root is not None:
            _record_places(stream.next, root, places.root)
            return True
    return False


class _Open(msgspec.Struct):
    """An open container: the number of its next item, or the key of its next value."""

    parts: Parts
    is_list: bool
    count: int = 0
    key: str | None = None
    key_position: Position | None = None


def _record_places(get: Callable[[], Any], event: Any, root: Place) -> None:
    stack: list[_Open] = []
    root.value = get_event_position(event)
    while True:
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            stack.pop()
        else:
            here = _add_node_place(stack[-1], event) if stack else root
            if here is not None and (kind is MappingStartEvent or kind is SequenceStartEvent):
                stack.append(_Open(here.open(), kind is SequenceStartEvent))
        if not stack:
            return
        event = get()


def _get_plain_text(event: Any) -> str | None:
    """The text of a plain scalar that may be a number, a boolean or null."""
    if type(event) is not ScalarEvent or event.style or event.tag:
        return None
    text: str = event.value
    return text if text in WORDS or text[0] in NUMERIC else None


def _add_node_place(parent: _Open, event: Any) -> Place | None:
    """The place of the next node of ``parent``; None for a key, unless it is a list or mapping."""
    position, text = get_event_position(event), _get_plain_text(event)
    if parent.is_list:
        parent.count += 1
        return add_place(parent.parts, parent.count - 1, position, None, text)
    if parent.key is None:
        parent.key = event.value if type(event) is ScalarEvent else ""
        parent.key_position = position
        return None if type(event) is ScalarEvent else add_place(parent.parts, "", None, None, None)
    if parent.key_position and position[0] != parent.key_position[0] and is_empty(event):
        # `? key` without a value: the parser places the value before the next node, which may be the end of the file.
        position = parent.key_position
    key, parent.key = parent.key, None
    return add_place(parent.parts, key, position, parent.key_position, text)


def pointers_by_position(raw: bytes, *, is_json: bool = False) -> dict[Position, Pointer]:
    """Where the values of a file, and the keys that lead to them, begin → their pointers; the outermost one wins.

    A pointer is that in its own document of the file. It ends before a document that cannot be parsed.
    """
    pointers: dict[Position, Pointer] = {}
    stream, places = EventStream(raw, LIMITS, is_json=is_json), Positions()
    while record_positions(stream, 0, places):
        for at, here in _outermost_first(places.root):
            pointers |= {
                position: at for position in (here.key, here.value) if position is not None and position not in pointers
            }
        places = Positions()
    return pointers


def _outermost_first(root: Place) -> Iterator[tuple[Pointer, Place]]:
    """The places in ``root``, with itself, and their pointers."""
    waiting: deque[tuple[Pointer, Place]] = deque([((), root)])
    while waiting:
        at, here = waiting.popleft()
        yield at, here
        waiting.extend(((*at, step), part) for step, part in (here.parts or {}).items())


_NEAR = replace(LIMITS, file_nodes=50_000, document_share=0)
"""Tighter limits: an underline is not worth a long second parse."""

TO_THE_END = 1 << 30
"""The end of a scalar that continues on the next line."""


def find_scalar_spans(raw: bytes) -> dict[tuple[int, int], int]:
    """Line and column where each scalar or alias begins, and the column after its end; as far as it can be parsed.

    All count from 1.
    """
    ends: dict[tuple[int, int], int] = {}
    stream = EventStream(raw, _NEAR)
    with suppress(*ENDS):
        while (kind := type(event := stream.next())) is not StreamEndEvent:
            if kind is ScalarEvent or kind is AliasEvent:
                start, end = event.start_mark, event.end_mark
                stop = end.column + 1 if end.line == start.line else TO_THE_END
                ends[start.line + 1, start.column + 1] = stop
    return ends
