"""The places of the values of a file: a second, slower parse, for when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.documents.encoding import refuse
from reconciler.documents.json_compat import as_yaml
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import Places

_ENDED = 1 << 62
"""More documents than there are: a parser at its end answers no more, so that whatever is asked next begins anew."""


class Locator:
    """The places in the documents of one file; asked for them in their order it parses the file once."""

    def __init__(self, raw: bytes, limits: Limits = LIMITS) -> None:
        self._raw = as_yaml(raw) if refuse(raw, limits) is None else b""
        self._limits = limits
        self._get: Any = None
        self._walk: Callable[[Any, int, Limits, Places], bool]
        self._passed = _ENDED
        self._places = Places()

    def of(self, index: int) -> Places:
        """The places in the document ``index``, counted as ``Document.index``; as far as it can be parsed."""
        if index < self._passed:
            self._begin()
        if index > self._passed:
            self._places = Places()
            skipped, self._passed = index - self._passed - 1, _ENDED
            if self._walk(self._get, skipped, self._limits, self._places):
                self._passed = index
        return self._places

    def _begin(self) -> None:
        from reconciler.documents.position_walk import events_of, walk  # the parser: for when something is wrong

        self._get, self._walk = events_of(self._raw), walk
        self._passed = -1


def locate(raw: bytes, index: int, limits: Limits = LIMITS) -> Places:
    """The places in one document of a file; see Locator."""
    return Locator(raw, limits).of(index)
