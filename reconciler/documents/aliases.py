"""Anchors, aliases and merge keys of one document: shared values, counted as if written out."""

from __future__ import annotations

from typing import Any, Never

import msgspec

from reconciler.documents.events import Event, NodeEvent
from reconciler.documents.fault_sink import Sink
from reconciler.documents.limits import depth_texts

MERGE = object()
"""Stands for `<<` in a mapping until the mapping is complete; no key of a document can equal it."""


class Anchor(msgspec.Struct):
    """A named value, with its numbers of nodes and levels, aliases in it counted as if written out.

    ``text`` is the source of a plain scalar: the place of the alias decides its type.
    """

    value: Any
    nodes: int = 1
    levels: int = 0
    text: str | None = None
    complete: bool = True


class _Opened(msgspec.Struct):
    anchor: Anchor
    depth: int
    deepest: int
    nodes_before: int


class Anchors:
    """The anchors so far. An alias shares the value of its anchor, so the values of a document are read-only."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._named: dict[str, Anchor] = {}
        self._opened: list[_Opened] = []
        self._aliases = 0

    def name(self, name: str, value: Any, text: str | None) -> None:
        """Add the anchor of a scalar."""
        self._named[name] = Anchor(value, text=text)

    def open(self, event: NodeEvent, value: Any, depth: int, nodes: int) -> None:
        """Record the start of a list or mapping at ``depth``, with ``nodes`` counted in the containers ended so far."""
        if self._opened and depth > self._opened[-1].deepest:
            self._opened[-1].deepest = depth
        if event.anchor:
            anchor = self._named[event.anchor] = Anchor(value, complete=False)
            self._opened.append(_Opened(anchor, depth, depth, nodes))

    def close(self, value: Any, nodes: int) -> None:
        """Record the end of a list or mapping of ``nodes``."""
        if not self._opened or self._opened[-1].anchor.value is not value:
            return
        ended = self._opened.pop()
        ended.anchor.complete = True
        ended.anchor.nodes = 1 + nodes - ended.nodes_before
        ended.anchor.levels = ended.deepest - ended.depth + 1
        if self._opened and ended.deepest > self._opened[-1].deepest:
            self._opened[-1].deepest = ended.deepest

    def alias(self, event: Any, depth: int) -> Anchor | None:
        """The value of an alias inside ``depth`` levels; None, with a fault, if it has none.

        Raises LimitReached if the document has too many aliases, or is too deep with this one.
        """
        self._aliases += 1
        limits = self._sink.limits
        if self._aliases > limits.aliases:
            message = f"this document has more than {limits.aliases:,} aliases"
            self._sink.end("too-many-aliases", event, message, "write the values out, or split the document")
        anchor = self._named.get(event.anchor or "")
        if anchor is None:
            # Its name is not shown: it may be a password that begins with a star.
            message = "this alias names no anchor that precedes it in this document"
            self._sink.add("unknown-alias", event, message, "put text that begins with * in quotes")
            return None
        if not anchor.complete:
            message = "this alias is inside the value that it names, which would never end"
            self._sink.add("alias-cycle", event, message, "write the value out")
            return None
        self._deepen(event, depth + anchor.levels)
        return anchor

    def _deepen(self, event: Event, depth: int) -> None:
        if depth > self._sink.limits.depth:
            too_deep(self._sink, event)
        if self._opened and depth > self._opened[-1].deepest:
            self._opened[-1].deepest = depth


class Merges:
    """The open mappings that have a merge key, the innermost last."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: list[tuple[dict[Any, Any], Event]] = []

    def open(self, event: Event, into: dict[Any, Any]) -> None:
        """Record a merge key in ``into``."""
        self._waiting.append((into, event))

    def close(self, value: Any) -> None:
        """Merge into the complete mapping ``value``: its own keys win, then the earlier mapping."""
        if not self._waiting or self._waiting[-1][0] is not value:
            return
        into, event = self._waiting.pop()
        sources = into.pop(MERGE)
        for source in sources if type(sources) is list else [sources]:
            if type(source) is not dict:
                message = "<< merges mappings, and this is not a mapping"
                self._sink.add("merge-key", event, message, 'write a mapping or an alias of one, or "<<"')
                return
            for key, member in source.items():
                into.setdefault(key, member)


def too_deep(sink: Sink, event: Event) -> Never:
    """End the reading at ``event``. Raises LimitReached."""
    sink.end("too-deep", event, *depth_texts(sink.limits))


def too_many_nodes(sink: Sink, event: Event) -> Never:
    """End the reading at ``event``. Raises LimitReached."""
    message = f"this document has more than {sink.limits.nodes:,} values, aliases counted as if written out"
    sink.end("too-many-nodes", event, message, "split the document, or use fewer aliases")
