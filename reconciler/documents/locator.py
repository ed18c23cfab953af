"""Positions of the values of a file: a second, slower parse, which only faults need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from reconciler.documents.event_stream import ENDS, EventStream
from reconciler.documents.events import (
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    is_empty,
)
from reconciler.documents.fault_sink import place
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import Pointer, Position, Positions
from reconciler.documents.scalars import NUMERIC, WORDS


def walk(stream: EventStream, skipped: int, places: Positions) -> bool:
    """Record the positions of the document after ``skipped`` more; False if it is missing or unreadable."""
    with suppress(*ENDS):
        for _ in range(skipped):
            stream.document()
        root = stream.document()
        if root is not None:
            _walk(stream.next, root, places)
            return True
    return False


class _Open(msgspec.Struct):
    """An open container: the number of its next item, or the key of its next value."""

    pointer: Pointer
    is_list: bool
    count: int = 0
    key: str | None = None
    key_place: Position | None = None


def _walk(get: Callable[[], Any], event: Any, places: Positions) -> None:
    stack: list[_Open] = []
    while True:
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            stack.pop()
        else:
            pointer = _step(stack[-1], event, places) if stack else _root_pointer(event, places)
            if kind is MappingStartEvent or kind is SequenceStartEvent:
                stack.append(_Open(pointer, kind is SequenceStartEvent))
        if not stack:
            return
        event = get()


def _root_pointer(event: Any, places: Positions) -> Pointer:
    places.add((), place(event), None)
    return ()


def _written(event: Any) -> str | None:
    """The text of a plain scalar that may be a number, a boolean or null."""
    if type(event) is not ScalarEvent or event.style or event.tag:
        return None
    text: str = event.value
    return text if text in WORDS or text[0] in NUMERIC else None


def _step(parent: _Open, event: Any, places: Positions) -> Pointer:
    """The pointer of the next node of ``parent``, recorded unless the node is a key."""
    here, written = place(event), _written(event)
    if parent.is_list:
        pointer: Pointer = (*parent.pointer, parent.count)
        parent.count += 1
        places.add(pointer, here, None, written)
        return pointer
    if parent.key is None:
        parent.key = event.value if type(event) is ScalarEvent else ""
        parent.key_place = here
        return (*parent.pointer, parent.key)
    pointer = (*parent.pointer, parent.key)
    if parent.key_place and here[0] != parent.key_place[0] and is_empty(event):
        # `? key` without a value: the parser places the value before the next node, which may be the end of the file.
        here = parent.key_place
    places.add(pointer, here, parent.key_place, written)
    parent.key = None
    return pointer


_ENDED = 1 << 62
"""A number of documents beyond any file: the parser is at its end, so the next call starts a new one."""


class Locator:
    """The positions in the documents of one file; calls in the order of documents parse the file once."""

    def __init__(self, raw: bytes, limits: Limits = LIMITS) -> None:
        self._raw = raw
        self._limits = limits
        self._stream: EventStream
        self._passed = _ENDED
        self._places = Positions()

    def of(self, index: int) -> Positions:
        """The positions in the document ``index`` (``Document.index``), as far as it can be parsed."""
        if index < self._passed:
            self._begin()
        if index > self._passed:
            self._places = Positions()
            skipped, self._passed = index - self._passed - 1, _ENDED
            if walk(self._stream, skipped, self._places):
                self._passed = index
        return self._places

    def _begin(self) -> None:
        self._stream = EventStream(self._raw, self._limits)
        self._passed = -1


def locate(raw: bytes, index: int, limits: Limits = LIMITS) -> Positions:
    """The positions in one document of a file."""
    return Locator(raw, limits).of(index)
