"""Composes plain values from the events of a file, in one pass and within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from reconciler.documents.aliases import Anchors, too_deep, too_many_nodes
from reconciler.documents.encoding import too_large
from reconciler.documents.events import (
    AliasEvent,
    CParser,
    DocumentEndEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    is_empty,
)
from reconciler.documents.fault_sink import Sink
from reconciler.documents.limits import Limits
from reconciler.documents.scalars import MERGE_KEY, NUMERIC, WORDS, Problem, collection, literal, plain, tagged
from reconciler.documents.types import UNREADABLE, Document, Reading
from reconciler.model.finding import Fault
from reconciler.printable import is_name, may_hide

# Stands for `<<` in a mapping until the mapping is complete; no key of a document can equal it.
MERGE = object()


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


# The role of the next node in the open container: an item of a list, a key or, if neither, the value of that key.
_ITEM = object()
_KEY = object()

# A file without these bytes has no anchor, tag, escape or merge key, so the checks for them are skipped. One byte of
# the merge key is enough: searching for both takes ten times as long.
_UNUSUAL = (b"&", b"!", b"\\", MERGE_KEY[:1].encode())
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# The number of open containers while the members of a top-level field are read: the root, and the one around it.
_IN_FIELD = 2

_ESCAPED_CONTROL = Problem(
    "control-character", "this text has a control character", "remove the escape; only tab and newline are allowed"
)
_KEY_TYPE = Problem("key-type", "this key is not text", "put the key in quotes")
_KEY_HIDES = Problem(
    "control-character",
    "this key has a character that is invisible, or that changes how the rest is shown",
    "type the key again",
)
_KEY_OPENED = Problem("key-type", "a list or mapping is used as a key", "quote text that begins with a bracket")


class _NeedKeyPositions(Exception):
    """A key is duplicate, and the place of the first one was not recorded."""


def compose(raw: bytes, limits: Limits, fields: frozenset[str], collect: Callable[[Composer], Reading]) -> Reading:
    """What ``collect`` makes of a composer of ``raw``; a file with a duplicate key is composed a second time."""
    try:
        return collect(Composer(raw, limits, fields, key_lines=False))
    except _NeedKeyPositions:
        return collect(Composer(raw, limits, fields, key_lines=True))


class Composer:
    """One pass over the bytes of a file.

    ``key_lines`` records the line of every key, which only a file with a duplicate key needs.
    """

    def __init__(self, raw: bytes, limits: Limits, text_fields: frozenset[str], *, key_lines: bool) -> None:
        self.faults = Sink(limits)
        self._limits = limits
        self._get: Callable[[], Any] = CParser(raw).get_event
        self._text_fields = text_fields
        self._unusual = any(mark in raw for mark in _UNUSUAL)
        self._key_lines = key_lines
        self._every_key = key_lines or b"\\" in raw or may_hide(raw)
        self._file_nodes = 0
        self._begin()

    def documents(self) -> Iterator[tuple[Document, list[Fault]]]:
        """Each document with its faults; empty ones are not counted.

        Raises LimitReached, and PyYAML's errors where the file is not well-formed.
        """
        self._get()
        started = index = 0
        while type(start := self._get()) is not StreamEndEvent:
            started += 1
            if started > self._limits.documents:
                message = f"this file holds more than {self._limits.documents:,} documents"
                self.faults.end("too-many-documents", start, message, "split the file")
            root = self._get()
            if is_empty(root):
                self._get()
                continue
            before = len(self.faults.faults)
            self._begin()
            value, end = self._compose(root)
            self._check_size(root, end.end_mark.index - start.start_mark.index)
            self._file_nodes += self._nodes
            if self._file_nodes > (most := self._limits.file_nodes_at(started)):
                message = f"this file has more than {most:,} values in its first {started:,} documents"
                self.faults.end("too-many-nodes", root, message, "split the file")
            yield Document(self._marked(value), index, root.start_mark.line + 1), self.faults.faults[before:]
            index += 1

    def _begin(self) -> None:
        self._anchors = Anchors(self.faults)
        self._merges = Merges(self.faults)
        self._stack: list[tuple[Any, Any]] = []
        self._nodes = 1
        self._repeats: list[tuple[dict[Any, Any], str]] = []
        self._lines: dict[tuple[int, str], int] = {}
        self._alive: list[Any] = []

    def _compose(self, event: Any) -> tuple[Any, Any]:
        # A first load spends its time here: names are local, and rare cases are in other functions.
        get, unusual, every_key, stack = self._get, self._unusual, self._every_key, self._stack
        holder: list[Any] = []
        filled: Any = holder
        role: Any = _ITEM
        # A node is at most two events, so this bounds the nodes between the exact counts at the ends of containers.
        for _ in repeat(None, 2 * self._limits.nodes + 1):
            kind = type(event)
            if kind is ScalarEvent:
                value = event.value
                if unusual:
                    value = self._scalar(event, role is _KEY)
                elif (value in WORDS or value[0] in NUMERIC) and not event.style:
                    value = plain(value) if len(stack) != _IN_FIELD else self._plain(value, role is _KEY)
                    value = value if type(value) is not Problem else self._checked(event, value, role is _KEY)
                if role is _ITEM:
                    filled.append(value)
                elif role is not _KEY:
                    filled[role] = value
                    role = _KEY
                elif every_key or type(value) is not str or value in filled:
                    role = self._key(event, value, filled)
                else:
                    role = value
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._close(event, filled)
                filled, role = stack.pop()
            elif kind is DocumentEndEvent:
                return holder[0], event
            else:
                filled, role = self._open(event, filled, role)
            event = get()
        return too_many_nodes(self.faults, event)

    def _open(self, event: Any, filled: Any, role: Any) -> tuple[Any, Any]:
        """Add a list, a mapping or an alias; returns the container to fill next, and the role of its next node."""
        kind = type(event)
        value: Any = {} if kind is MappingStartEvent else [] if kind is SequenceStartEvent else self._alias(event)
        if role is _ITEM:
            filled.append(value)
        elif role is _KEY:
            role = self._key(event, value, filled)
        else:
            filled[role] = value
            role = _KEY
        if kind is AliasEvent:
            return filled, role
        self._stack.append((filled, role))
        if len(self._stack) > self._limits.depth:
            too_deep(self.faults, event)
        if self._unusual:
            self._mark(event, value)
        return value, _KEY if kind is MappingStartEvent else _ITEM

    def _mark(self, event: Any, value: Any) -> None:
        self._anchors.open(event, value, len(self._stack), self._nodes)
        if event.tag:
            self._checked(event, collection(event.tag, "map" if type(value) is dict else "seq"))

    def _scalar(self, event: Any, as_key: bool) -> Any:
        text = event.value
        is_plain = not event.style and not event.tag
        resolved: Any = text
        if event.style == '"' and _CONTROL.search(text):
            resolved = _ESCAPED_CONTROL
        elif event.tag:
            resolved = tagged(event.tag, text)
        elif is_plain:
            resolved = self._plain(text, as_key)
        resolved = self._checked(event, resolved, as_key)
        if event.anchor:
            self._anchors.name(event.anchor, resolved, text if is_plain else None)
        return resolved

    def _plain(self, text: str, as_key: bool) -> Any:
        if as_key and text == MERGE_KEY:
            return MERGE
        if len(self._stack) == _IN_FIELD and not as_key:
            root = self._stack[1][0]
            # A mapping is attached to the root before it is filled, so its field is the root's last.
            if type(root) is dict and next(reversed(root), None) in self._text_fields:
                return literal(text)
        return plain(text)

    def _checked(self, event: Event, resolved: Any, as_key: bool = False) -> Any:
        if type(resolved) is not Problem:
            return resolved
        suggestion = resolved.key_suggestion if as_key and resolved.key_suggestion else resolved.suggestion
        self.faults.add(resolved.rule, event, resolved.message, suggestion)
        return f"{UNREADABLE}{len(self.faults.faults)}"

    def _alias(self, event: Any) -> Any:
        anchor = self._anchors.alias(event, len(self._stack))
        if anchor is None:
            return {}
        self._nodes += anchor.nodes - 1
        if self._nodes > self._limits.nodes:
            too_many_nodes(self.faults, event)
        return anchor.value if anchor.text is None else self._checked(event, self._plain(anchor.text, False))

    def _close(self, event: Event, filled: Any) -> None:
        self._nodes += 2 * len(filled) if type(filled) is dict else len(filled)
        if self._nodes > self._limits.nodes:
            too_many_nodes(self.faults, event)
        if self._unusual:
            self._merges.close(filled)
            self._anchors.close(filled, self._nodes)

    def _key(self, event: Any, value: Any, filled: dict[Any, Any]) -> Any:
        if value is not MERGE and type(value) is not str:
            self._checked(event, _KEY_OPENED if type(value) in (dict, list) else _KEY_TYPE)
            value = f"{UNREADABLE}{event.start_mark.index}"
        elif type(value) is str and not value.startswith(UNREADABLE) and not is_name(value):
            value = self._checked(event, _KEY_HIDES)
        if value in filled:
            self._repeated(event, value, filled)
        elif value is MERGE:
            self._merges.open(event, filled)
        if self._key_lines:
            self._lines.setdefault((id(filled), value), event.start_mark.line + 1)
            self._alive.append(filled)
        return value

    def _repeated(self, event: Event, key: Any, filled: dict[Any, Any]) -> None:
        if not self._key_lines:
            raise _NeedKeyPositions
        first = self._lines[id(filled), key]
        # The key is not shown: after a lost indentation it may be a line of a secret.
        message = f"this key occurs twice in its mapping, first on line {first}"
        self.faults.add("duplicate-key", event, message, "keep one of the two")
        # The last key of a mapping counts as the one whose value is being read.
        del filled[key]
        self._repeats.append((filled, key))

    def _marked(self, value: Any) -> Any:
        """``value`` without duplicate keys, whose meaning is unknown."""
        for filled, key in self._repeats:
            if key is MERGE:
                return UNREADABLE
            filled[key] = UNREADABLE
        return value

    def _check_size(self, root: Event, size: int) -> None:
        if size > self._limits.document_bytes:
            self.faults.end("too-large", root, too_large(size, self._limits), "split the document")
