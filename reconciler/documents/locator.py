"""Positions of the values of a file: a second, slower parse, which only faults need."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
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
from reconciler.documents.positions import Parts, Place, Pointer, Position, Positions, add_place
from reconciler.documents.scalars import NUMERIC, WORDS
from reconciler.documents.types import Document


def walk(stream: EventStream, skipped: int, places: Positions) -> bool:
    """Record the positions of the document after ``skipped`` more; False if it is missing or unreadable."""
    with suppress(*ENDS):
        for _ in range(skipped):
            stream.document()
        root = stream.document()
        if root is not None:
            _walk(stream.next, root, places.root)
            return True
    return False


class _Open(msgspec.Struct):
    """An open container: the number of its next item, or the key of its next value."""

    parts: Parts
    is_list: bool
    count: int = 0
    key: str | None = None
    key_position: Position | None = None


def _walk(get: Callable[[], Any], event: Any, root: Place) -> None:
    stack: list[_Open] = []
    root.value = place(event)
    while True:
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            stack.pop()
        else:
            here = _step(stack[-1], event) if stack else root
            if here is not None and (kind is MappingStartEvent or kind is SequenceStartEvent):
                stack.append(_Open(here.open(), kind is SequenceStartEvent))
        if not stack:
            return
        event = get()


def _written(event: Any) -> str | None:
    """The text of a plain scalar that may be a number, a boolean or null."""
    if type(event) is not ScalarEvent or event.style or event.tag:
        return None
    text: str = event.value
    return text if text in WORDS or text[0] in NUMERIC else None


def _step(parent: _Open, event: Any) -> Place | None:
    """The place of the next node of ``parent``; None for a key, unless it is a list or mapping."""
    position, text = place(event), _written(event)
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


_ENDED = 1 << 62
"""A number of documents beyond any file: the parser is at its end, so the next call starts a new one."""


class Locator:
    """The positions in the documents of one file; calls in the order of documents parse the file once.

    ``simple``: the file has simple lines only (``line_reader``).
    """

    def __init__(self, raw: bytes, limits: Limits = LIMITS, *, simple: bool = False) -> None:
        self._raw = raw
        self._limits = limits
        self._simple = simple
        self._line_starts: list[int] = []
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

    def key(self, document: Document, pointer: Pointer) -> Position:
        """Where the key that leads to ``pointer`` begins in ``document``; see ``Positions.key``."""
        line = self._line_of(str(pointer[0]), document) if self._simple and len(pointer) == 1 else 0
        return (line, 1) if line else self.of(document.index).key(pointer)

    def _line_of(self, key: str, document: Document) -> int:
        """The line of ``document``, in a simple file, that begins with ``key``; 0 for none.

        It is a key of the root: text and values below a key are indented. Thus a secret in plain text, as most are that
        need a position, is not parsed again.
        """
        if not self._line_starts:
            self._line_starts = [0, *(found.end() for found in re.finditer(b"\n", self._raw))]
        start = self._line_starts[document.line - 1]
        found = re.compile(rb"^(?:---\r?$|%b:)" % re.escape(key.encode()), re.MULTILINE).search(self._raw, start)
        if found is None or found[0].startswith(b"---"):
            return 0
        return document.line + self._raw.count(b"\n", start, found.start())

    def _begin(self) -> None:
        self._stream = EventStream(self._raw, self._limits)
        self._passed = -1


def pointers_by_position(raw: bytes) -> dict[Position, Pointer]:
    """Where the values of a file, and the keys that lead to them, begin → their pointers; the outermost one wins.

    A pointer is that in its own document of the file. It ends before a document that cannot be parsed.
    """
    found: dict[Position, Pointer] = {}
    stream, places = EventStream(raw, LIMITS), Positions()
    while walk(stream, 0, places):
        for at, here in _outermost_first(places.root):
            found |= {each: at for each in (here.key, here.value) if each is not None and each not in found}
        places = Positions()
    return found


def _outermost_first(root: Place) -> Iterator[tuple[Pointer, Place]]:
    """The places in ``root``, with itself, and their pointers."""
    waiting: deque[tuple[Pointer, Place]] = deque([((), root)])
    while waiting:
        at, here = waiting.popleft()
        yield at, here
        waiting.extend(((*at, step), part) for step, part in (here.parts or {}).items())


def locate(raw: bytes, index: int, limits: Limits = LIMITS) -> Positions:
    """The positions in one document of a file."""
    return Locator(raw, limits).of(index)
