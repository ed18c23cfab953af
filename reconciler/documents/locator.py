"""Positions of the values of a file: a second, slower parse, which only faults need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import Positions

if TYPE_CHECKING:
    from reconciler.documents.event_stream import EventStream

_ENDED = 1 << 62
"""A number of documents beyond any file: the parser is at its end, so the next call starts a new one."""


class Locator:
    """The positions in the documents of one file; calls in the order of documents parse the file once.

    ``is_json``: it is read as JSON.
    """

    def __init__(self, raw: bytes, limits: Limits = LIMITS, *, is_json: bool = False) -> None:
        self._raw = raw
        self._is_json = is_json
        self._limits = limits
        self._stream: EventStream
        self._passed = _ENDED
        self._places = Positions()

    def of(self, index: int) -> Positions:
        """The positions in the document ``index`` (``Document.index``), as far as it can be parsed."""
        from reconciler.documents.event_positions import (
            record_positions,  # loads PyYAML, which files without faults do not need
        )

        if index < self._passed:
            self._begin()
        if index > self._passed:
            self._places = Positions()
            skipped, self._passed = index - self._passed - 1, _ENDED
            if record_positions(self._stream, skipped, self._places):
                self._passed = index
        return self._places

    def _begin(self) -> None:
        from reconciler.documents.event_stream import EventStream

        self._stream = EventStream(self._raw, self._limits, is_json=self._is_json)
        self._passed = -1


def locate_document(raw: bytes, index: int, limits: Limits = LIMITS, *, is_json: bool = False) -> Positions:
    """The positions in one document of a file."""
    return Locator(raw, limits, is_json=is_json).of(index)
