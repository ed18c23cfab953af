"""The events of one file within the limits of the reader, for every pass after the first."""

from __future__ import annotations

from typing import Any

from yaml import YAMLError

from reconciler.documents.encoding import check_encoding, fix_json_surrogates
from reconciler.documents.events import (
    AliasEvent,
    CParser,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    is_empty,
)
from reconciler.documents.fault_sink import LimitReached
from reconciler.documents.limits import LIMITS, Limits

ENDS = (YAMLError, LimitReached)
"""Exceptions that end a stream before the end of its file."""

_OPENING = frozenset({MappingStartEvent, SequenceStartEvent})
_CLOSING = frozenset({MappingEndEvent, SequenceEndEvent})


class EventStream:
    """The parser's events, one for each call of ``next``; stops no later than the reader does in the same file.

    The positions of events refer to ``content``: the text of the file with repaired JSON escapes, as in the reader;
    empty if the reader refuses the file without parsing it.
    """

    def __init__(self, raw: bytes, limits: Limits = LIMITS) -> None:
        self.content = fix_json_surrogates(raw) if check_encoding(raw, limits) is None else b""
        self._get: Any = CParser(self.content).get_event
        self._limits = limits
        self._at_limit = False
        self._depth = self._documents = self._file_events = self._events = self._aliases = self._start = 0
        self._most_events = self._most()

    def next(self) -> Any:
        """The next event; one that exceeds a limit is the last.

        Raises LimitReached after that one, and YAMLError if the file is not well-formed.
        """
        if self._at_limit:
            raise LimitReached
        event = self._get()
        kind = type(event)
        self._events += 1
        if kind in _OPENING:
            self._depth += 1
        elif kind in _CLOSING:
            self._depth -= 1
        elif kind is AliasEvent:
            self._aliases += 1
        elif kind is DocumentStartEvent:
            self._documents += 1
            self._file_events += self._events
            self._events = self._aliases = 0
            self._start = event.start_mark.index
            self._most_events = self._most()
        limits = self._limits
        self._at_limit = (
            self._depth > limits.depth
            or self._events > self._most_events
            or self._aliases > limits.aliases
            or self._documents > limits.documents
            or event.start_mark.index - self._start > limits.document_bytes
        )
        return event

    def _most(self) -> int:
        """The limit of events of the current document; a node is at most two events."""
        limits = self._limits
        return min(2 * limits.nodes, 2 * limits.file_nodes_at(self._documents) - self._file_events)

    def document(self) -> Any:
        """The first event of the next document that is not empty, None at the end of the file.

        The caller must read to the end of that document. Raises the errors of ``next``.
        """
        while type(event := self.next()) is not StreamEndEvent:
            if type(event) is DocumentStartEvent and not is_empty(root := self.next()):
                return root
        return None
