"""Composes plain values from the events of a file, in one pass and within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import repeat, starmap
from typing import Any

from reconciler.documents.aliases import MERGE, Anchors, Merges, too_deep, too_many_nodes
from reconciler.documents.encoding import too_large
from reconciler.documents.events import (
    AliasEvent,
    CParser,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    Parser,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    is_empty,
)
from reconciler.documents.fault_sink import Sink
from reconciler.documents.limits import Limits
from reconciler.documents.scalars import (
    MERGE_KEY,
    NUMERIC,
    WORDS,
    ScalarProblem,
    check_collection_tag,
    parse_literal_scalar,
    parse_plain_scalar,
    parse_tagged_scalar,
)
from reconciler.documents.types import UNREADABLE, Document, Reading
from reconciler.model.finding import Fault
from reconciler.printable import is_name, may_hide

# A file without these bytes has no anchor, tag, escape or merge key, so the checks for them are skipped. One byte of
# the merge key is enough: searching for both takes ten times as long.
_UNUSUAL = (b"&", b"!", b"\\", MERGE_KEY[:1].encode())
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Refused in values, even escaped. A carriage return is taken: health checks speak HTTP with it."""

_ESCAPED_CONTROL = ScalarProblem(
    "control-character", "this text has a control character", "remove the escape; only \\t, \\n and \\r are allowed"
)
_KEY_TYPE = ScalarProblem("key-type", "this key is not text", "put the key in quotes")
_KEY_HIDES = ScalarProblem(
    "control-character",
    "this key has a character that is invisible, or that changes how the rest is shown",
    "type the key again",
)
_KEY_OPENED = ScalarProblem("key-type", "a list or mapping is used as a key", "quote text that begins with a bracket")


_KIND = "kind"
_TORN = 2
"""The keys of a document, `kind` among them, that occur twice where another document begins without a separator."""

Parse = Callable[[bytes], Parser]
"""Begins to read the bytes of a file."""


class _NeedKeyPositions(Exception):
    """A key is duplicate, and the place of the first one was not recorded."""


def compose_documents(
    raw: bytes,
    limits: Limits,
    fields: frozenset[str],
    collect: Callable[[Composer], Reading],
    parse: Parse = CParser,
) -> Reading:
    """What ``collect`` makes of a composer of ``raw``; a file with a duplicate key is composed a second time."""
    try:
        return collect(Composer(raw, limits, fields, key_lines=False, parse=parse))
    except _NeedKeyPositions:
        return collect(Composer(raw, limits, fields, key_lines=True, parse=parse))


class Composer:
    """One pass over the bytes of a file.

    ``key_lines`` records the line of every key, which only a file with a duplicate key needs.
    """

    def __init__(
        self, raw: bytes, limits: Limits, text_fields: frozenset[str], *, key_lines: bool, parse: Parse = CParser
    ) -> None:
        self.faults = Sink(limits)
        self._limits = limits
        self._get: Callable[[], Any] = parse(raw).get_event
        self._text_fields = text_fields
        self._unusual = any(mark in raw for mark in _UNUSUAL)
        self._key_lines = key_lines
        self._every_key = key_lines or b"\\" in raw or may_hide(raw)
        self._file_nodes = 0

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
            value = self._node(root)
            self._join_torn_repeats(value, root)
            self._check_size(root, self._get().end_mark.index - start.start_mark.index)
            self._file_nodes += self._nodes
            if self._file_nodes > (most := self._limits.file_nodes_at(started)):
                message = f"this file has more than {most:,} values in its first {started:,} documents"
                self.faults.end("too-many-nodes", root, message, "split the file")
            yield Document(self._mark_duplicates(value), index, root.start_mark.line + 1), self.faults.faults[before:]
            index += 1

    def _begin(self) -> None:
        self._anchors = Anchors(self.faults)
        self._merges = Merges(self.faults)
        # A node is at most two events, so this bounds the nodes between the exact counts at the ends of containers.
        self._events = starmap(self._get, repeat((), 2 * self._limits.nodes))
        self._nodes = 1
        self._repeats: list[tuple[dict[Any, Any], str]] = []
        self._repeat_faults: list[Fault] = []
        self._lines: dict[tuple[int, str], int] = {}
        self._alive: list[Any] = []

    def _mapping(self, start: Any, depth: int, as_text: bool) -> dict[Any, Any]:
        # A first load spends its time here: names are local, rare cases are in other functions, and a container opens
        # and closes without a call unless the file has anchors or tags, or is at a limit.
        events, unusual, every_key = self._events, self._unusual, self._every_key
        filled: dict[Any, Any] = {}
        if unusual or depth > self._limits.depth:
            self._open(start, filled, depth)
        for event in events:
            if type(event) is ScalarEvent:
                key = event.value
                if unusual or ((key in WORDS or key[0] in NUMERIC) and not event.style):
                    key = self._scalar(event, False, True)
                if every_key or type(key) is not str or key in filled:
                    key = self._key(event, key, filled)
            elif type(event) is MappingEndEvent:
                self._nodes += 2 * len(filled)
                if unusual or self._nodes > self._limits.nodes:
                    self._close(event, filled)
                break
            else:
                key = self._collection_as_key(event, filled, depth, as_text)
            event = next(events, None)
            if type(event) is ScalarEvent:
                value = event.value
                if unusual or ((value in WORDS or value[0] in NUMERIC) and not event.style):
                    value = self._scalar(event, as_text)
                filled[key] = value
            else:
                filled[key] = self._node(event, depth, as_text, depth == 1 and key in self._text_fields)
        else:
            too_many_nodes(self.faults, self._get())
        return filled

    def _sequence(self, start: Any, depth: int, as_text: bool) -> list[Any]:
        unusual = self._unusual
        filled: list[Any] = []
        if unusual or depth > self._limits.depth:
            self._open(start, filled, depth)
        for event in self._events:
            if type(event) is ScalarEvent:
                value = event.value
                if unusual or ((value in WORDS or value[0] in NUMERIC) and not event.style):
                    value = self._scalar(event, as_text)
                filled.append(value)
            elif type(event) is SequenceEndEvent:
                self._nodes += len(filled)
                if unusual or self._nodes > self._limits.nodes:
                    self._close(event, filled)
                break
            else:
                filled.append(self._node(event, depth, as_text))
        else:
            too_many_nodes(self.faults, self._get())
        return filled

    def _node(self, event: Any, depth: int = 0, as_text: bool = False, members_as_text: bool = False) -> Any:
        """The value that begins with ``event`` in ``depth`` containers.

        ``as_text``: numbers and booleans stay as written; ``members_as_text``: those directly in this value do.
        """
        kind = type(event)
        if kind is MappingStartEvent:
            return self._mapping(event, depth + 1, members_as_text)
        if kind is SequenceStartEvent:
            return self._sequence(event, depth + 1, members_as_text)
        if kind is ScalarEvent:
            return self._scalar(event, as_text)
        if kind is AliasEvent:
            return self._alias(event, depth, as_text)
        return too_many_nodes(self.faults, self._get())

    def _collection_as_key(self, event: Any, filled: dict[Any, Any], depth: int, as_text: bool) -> Any:
        if type(event) is AliasEvent:
            return self._key(event, self._alias(event, depth, as_text), filled)
        key = self._key(event, [], filled)
        self._node(event, depth)
        return key

    def _open(self, event: Any, filled: Any, depth: int) -> None:
        if depth > self._limits.depth:
            too_deep(self.faults, event)
        if self._unusual:
            self._anchors.open(event, filled, depth, self._nodes)
            if event.tag:
                self._check_scalar(event, check_collection_tag(event.tag, "map" if type(filled) is dict else "seq"))

    def _close(self, event: Any, filled: Any) -> None:
        if self._nodes > self._limits.nodes:
            too_many_nodes(self.faults, event)
        if self._unusual:
            self._merges.close(filled)
            self._anchors.close(filled, self._nodes)

    def _scalar(self, event: Any, as_text: bool, as_key: bool = False) -> Any:
        text = resolved = event.value
        is_plain = not event.style and not event.tag
        if is_plain:
            resolved = (
                MERGE
                if as_key and text == MERGE_KEY
                else parse_literal_scalar(text)
                if as_text
                else parse_plain_scalar(text)
            )
        elif event.style == '"' and _CONTROL.search(text):
            resolved = _ESCAPED_CONTROL
        elif event.tag:
            resolved = parse_tagged_scalar(event.tag, text)
        if type(resolved) is ScalarProblem:
            resolved = self._check_scalar(event, resolved, as_key)
        if event.anchor:
            self._anchors.name(event.anchor, resolved, text if is_plain else None)
        return resolved

    def _check_scalar(self, event: Event, resolved: Any, as_key: bool = False) -> Any:
        if type(resolved) is not ScalarProblem:
            return resolved
        suggestion = resolved.key_suggestion if as_key and resolved.key_suggestion else resolved.suggestion
        self.faults.add(resolved.rule, event, resolved.message, suggestion)
        return f"{UNREADABLE}{len(self.faults.faults)}"

    def _alias(self, event: Any, depth: int, as_text: bool) -> Any:
        anchor = self._anchors.alias(event, depth)
        if anchor is None:
            return {}
        self._nodes += anchor.nodes - 1
        if self._nodes > self._limits.nodes:
            too_many_nodes(self.faults, event)
        if anchor.text is None:
            return anchor.value
        return self._check_scalar(
            event, parse_literal_scalar(anchor.text) if as_text else parse_plain_scalar(anchor.text)
        )

    def _key(self, event: Any, value: Any, filled: dict[Any, Any]) -> Any:
        if value is not MERGE and type(value) is not str:
            self._check_scalar(event, _KEY_OPENED if type(value) in (dict, list) else _KEY_TYPE)
            value = f"{UNREADABLE}{event.start_mark.index}"
        elif type(value) is str and not value.startswith(UNREADABLE) and not is_name(value):
            value = self._check_scalar(event, _KEY_HIDES)
        if value in filled:
            self._report_repeat(event, value, filled)
        elif value is MERGE:
            self._merges.open(event, filled)
        if self._key_lines:
            self._lines.setdefault((id(filled), value), event.start_mark.line + 1)
            self._alive.append(filled)
        return value

    def _report_repeat(self, event: Event, key: Any, filled: dict[Any, Any]) -> None:
        if not self._key_lines:
            raise _NeedKeyPositions
        first = self._lines[id(filled), key]
        # The key is not shown: after a lost indentation it may be a line of a secret.
        message = f"this key occurs twice in its mapping, first on line {first}"
        self.faults.add("duplicate-key", event, message, "keep one of the two")
        # The last key of a mapping counts as the one whose value is being read.
        del filled[key]
        self._repeats.append((filled, key))
        self._repeat_faults.append(self.faults.faults[-1])

    def _join_torn_repeats(self, value: Any, root: Event) -> None:
        """Replace the faults of a document that continues with another one, without a separator, by one fault."""
        repeats = [
            (key, fault)
            for (filled, key), fault in zip(self._repeats, self._repeat_faults, strict=True)
            if filled is value
        ]
        keys = {key for key, _ in repeats}
        # A mapping in braces has its keys behind them.
        if len(keys) < _TORN or _KIND not in keys or repeats[0][1].column != root.start_mark.column + 1:
            return
        first = repeats[0][1]
        message = (
            f"a line `---` is probably missing above this line: `{_KIND}` and {len(keys) - 1} more keys of the mapping "
            "occur again from here on"
        )
        torn = Fault(
            "duplicate-key",
            message,
            first.line,
            first.column,
            f"write `---` between the documents, above line {first.line}",
        )
        at = self.faults.faults.index(first)
        others = {id(fault) for _, fault in repeats}
        self.faults.faults[at] = torn
        self.faults.faults[at + 1 :] = [fault for fault in self.faults.faults[at + 1 :] if id(fault) not in others]

    def _mark_duplicates(self, value: Any) -> Any:
        """``value`` without duplicate keys, whose meaning is unknown."""
        for filled, key in self._repeats:
            if key is MERGE:
                return UNREADABLE
            filled[key] = UNREADABLE
        return value

    def _check_size(self, root: Event, size: int) -> None:
        if size > self._limits.document_bytes:
            self.faults.end("too-large", root, too_large(size, self._limits), "split the document")
