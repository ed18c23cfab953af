"""The places of the values of a file: a second, slower parse, for when something is wrong."""

from __future__ import annotations

from reconciler.documents.event_stream import EventStream
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.position_walk import walk
from reconciler.documents.positions import Positions

_ENDED = 1 << 62
"""More documents than there are: a parser at its end answers no more, so that whatever is asked next begins anew."""


class Locator:
    """The places in the documents of one file; asked for them in their order it parses the file once."""

    def __init__(self, raw: bytes, limits: Limits = LIMITS) -> None:
        self._raw = raw
        self._limits = limits
        self._stream: EventStream
        self._passed = _ENDED
        self._places = Positions()

    def of(self, index: int) -> Positions:
        """The places in the document ``index``, counted as ``Document.index``; as far as it can be parsed."""
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
    """The places in one document of a file; see Locator."""
    return Locator(raw, limits).of(index)
