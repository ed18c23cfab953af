"""Positions of the values of a file: a second, slower parse, which only faults need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import Pointer, Position, Positions
from reconciler.documents.types import Document

if TYPE_CHECKING:
    from reconciler.documents.event_stream import EventStream

_ENDED = 1 << 62
"""A number of documents beyond any file: the parser is at its end, so the next call starts a new one."""


class Locator:
    """The positions in the documents of one file; calls in the order of documents parse the file once.

    ``simple``: the file has simple lines only (``line_reader``). ``is_json``: it is read as JSON.
    """

    def __init__(self, raw: bytes, limits: Limits = LIMITS, *, simple: bool = False, is_json: bool = False) -> None:
        self._raw = raw
        self._is_json = is_json
        self._limits = limits
        self._simple = simple
        self._line_starts: list[int] = []
        self._stream: EventStream
        self._passed = _ENDED
        self._places = Positions()

    def of(self, index: int) -> Positions:
        """The positions in the document ``index`` (``Document.index``), as far as it can be parsed."""
        from reconciler.documents.event_positions import walk  # loads PyYAML, which files without faults do not need

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
        from reconciler.documents.event_stream import EventStream

        self._stream = EventStream(self._raw, self._limits, is_json=self._is_json)
        self._passed = -1


def locate(raw: bytes, index: int, limits: Limits = LIMITS, *, is_json: bool = False) -> Positions:
    """The positions in one document of a file."""
    return Locator(raw, limits, is_json=is_json).of(index)
