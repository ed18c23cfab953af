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
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    is_empty,
)
from reconciler.documents.fault_sink import LimitReached
from reconciler.documents.json.events import JsonEvents
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

    def __init__(self, raw: bytes, limits: Limits = LIMITS, *, is_json: bool = False) -> None:
        sound = check_encoding(raw, limits, is_stream=is_json) is None
        self.content = b"" if not sound else raw if is_json else fix_json_surrogates(raw)
        self._get: Any = JsonEvents(raw.decode()).get_event if is_json and sound else CParser(self.content).get_event
        self._limits = limits
        self._at_limit = False
        self._depth = self._documents = self._file_events = self._events = self._aliases = 0
        self._begin(0)

    def next(self) -> Any:
        """The next event; one that exceeds a limit is the last.

        Raises LimitReached after that one, and YAMLError if the file is not well-formed.
        """
        if self._at_limit:
            raise LimitReached
        event = self._get()
        self._events += 1
        if type(event) is not ScalarEvent:
            self._at_limit = self._count(event)
        if self._events > self._last_event or event.start_mark.index > self._last_index:
            self._at_limit = True
        return event

    def _count(self, event: Any) -> bool:
        """Whether the depth, the aliases or the documents exceed a limit with ``event``."""
        kind, limits = type(event), self._limits
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
            self._begin(event.start_mark.index)
        return self._depth > limits.depth or self._aliases > limits.aliases or self._documents > limits.documents

    def _begin(self, index: int) -> None:
        """Set the limits of a document that begins at the character ``index``; a node is at most two events."""
        limits = self._limits
        in_file = 2 * limits.file_nodes_at(self._documents) - self._file_events
        self._last_event = min(2 * limits.nodes, in_file)
        self._last_index = index + limits.document_bytes

    def document(self) -> Any:
        """The first event of the next document that is not empty, None at the end of the file.

        The caller must read to the end of that document. Raises the errors of ``next``.
        """
        while type(event := self.next()) is not StreamEndEvent:
            if type(event) is DocumentStartEvent and not is_empty(root := self.next()):
                return root
        return None
