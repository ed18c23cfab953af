"""Merge keys: ``<<`` adds the pairs of other mappings to its own."""

from __future__ import annotations

from typing import Any

from reconciler.documents.events import Event
from reconciler.documents.fault_sink import Sink

# Holds the place of `<<` in a mapping until the mapping is complete; no key of a document can equal it.
MERGE = object()


class Merges:
    """The mappings being filled that have a merge key, the innermost last."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: list[tuple[dict[Any, Any], Event]] = []

    def open(self, event: Event, into: dict[Any, Any]) -> None:
        """Note a merge key in ``into``."""
        self._waiting.append((into, event))

    def close(self, value: Any) -> None:
        """Merge what is to be merged into ``value``, now complete: its own keys win, then the earlier mapping."""
        if not self._waiting or self._waiting[-1][0] is not value:
            return
        into, event = self._waiting.pop()
        given = into.pop(MERGE)
        for source in given if type(given) is list else [given]:
            if type(source) is not dict:
                message = "<< merges mappings, and this is something else"
                self._sink.add("merge-key", event, message, 'give it a mapping or an alias of one, or write "<<"')
                return
            for key, member in source.items():
                into.setdefault(key, member)
