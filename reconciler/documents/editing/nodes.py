"""The nodes of a YAML document with the places where they are written, to change its text."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from reconciler.documents.event_stream import EventStream
from reconciler.documents.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent


class TextNode(msgspec.Struct):
    """A node that is written from ``start`` to ``end``, in characters of the text."""

    start: int
    end: int
    is_flow: bool
    """Whether it ends where its own text does: a scalar that is no block, an alias, or a collection in brackets."""


class ScalarNode(TextNode):
    """A text in ``quotes``: ``'``, ``"``, ``|``, ``>``, or "" without any."""

    text: str
    quotes: str


class AliasNode(TextNode):
    """A name for another node."""


class Member(NamedTuple):
    """A member of a mapping."""

    key: TextNode
    value: TextNode


class MappingNode(TextNode):
    """A mapping with its entries in their order; of a name that is written twice, the last one counts."""

    entries: list[Member]

    def by_name(self) -> dict[str, Member]:
        """The entries whose key is a scalar, by its text."""
        return {entry.key.text: entry for entry in self.entries if isinstance(entry.key, ScalarNode)}


class SequenceNode(TextNode):
    """A sequence with its items."""

    items: list[TextNode]


def read_json(text: str) -> list[TextNode]:
    """The root of each document of ``text``, which is JSON. Raises LimitReached if it is none."""
    stream, nodes = EventStream(text.encode(), is_json=True), list[TextNode]()
    while (root := stream.document()) is not None:
        nodes.append(_Nodes(stream, text).node(root))
    return nodes


def read_node(text: str) -> TextNode | None:
    """The root of the only document of ``text``; None without one, or if its places are not those of ``text``.

    Raises YAMLError if it is not YAML, and LimitReached.
    """
    stream = EventStream(text.encode())
    if stream.content.decode() != text:
        return None
    root = stream.document()
    return None if root is None else _Nodes(stream, text).node(root)


class _Nodes:
    """Makes nodes of events."""

    def __init__(self, stream: EventStream, text: str) -> None:
        self._stream = stream
        self._text = text

    def node(self, event: Any) -> TextNode:
        """The node that begins with ``event``."""
        kind, start = type(event), event.start_mark.index
        if kind is ScalarEvent:
            return self._scalar(event)
        if kind is MappingStartEvent:
            return self._mapping(event)
        if kind is SequenceStartEvent:
            return self._sequence(event)
        assert kind is AliasEvent
        return AliasNode(start, event.end_mark.index, True)

    def _scalar(self, event: Any) -> ScalarNode:
        start, end, style = event.start_mark.index, event.end_mark.index, event.style or ""
        if style not in ("|", ">"):
            return ScalarNode(start, end, True, event.value, style)
        # The parser reads on to the next line with text. Blank lines are part of the value only where it has them.
        written = len(self._text[start:end].rstrip(" \t\r\n"))
        first_break = self._text.find("\n", start + written)
        body_end = len(self._text) if first_break < 0 else first_break
        return ScalarNode(start, end if event.value.endswith("\n\n") else body_end, False, event.value, style)

    def _mapping(self, start: Any) -> MappingNode:
        node = MappingNode(start.start_mark.index, start.end_mark.index, bool(start.flow_style), [])
        while (event := self._stream.next()) and hasattr(event, "anchor"):
            node.entries.append(Member(self.node(event), self.node(self._stream.next())))
        node.end = event.end_mark.index if node.is_flow else node.entries[-1].value.end
        return node

    def _sequence(self, start: Any) -> SequenceNode:
        node = SequenceNode(start.start_mark.index, start.end_mark.index, bool(start.flow_style), [])
        while (event := self._stream.next()) and hasattr(event, "anchor"):
            node.items.append(self.node(event))
        node.end = event.end_mark.index if node.is_flow else node.items[-1].end
        return node
