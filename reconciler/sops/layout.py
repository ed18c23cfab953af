"""The positions of a file's values in its text, in order: for the MAC, and to replace them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from reconciler.documents.event_stream import ENDS, EventStream
from reconciler.documents.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from reconciler.documents.fault_sink import LimitReached
from reconciler.documents.scalars import MERGE_KEY, Scalar, ScalarProblem, parse_plain_scalar
from reconciler.model.finding import Pointer

MOST_SCALARS = 50_000
"""The maximum of keys and values in the encrypted documents of a file; each is located, decrypted and hashed."""

_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?:[Tt]|\s+)([0-9]{1,2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?\s*(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)


class ScalarSpan(NamedTuple):
    """A scalar that is a value: its pointer, and its text from ``start`` to ``end`` (in characters).

    ``plain``: it has neither quotes nor a tag. ``flow``: it is inside brackets. ``column``: where its key or item
    begins.
    """

    pointer: Pointer
    text: str
    start: int
    end: int
    plain: bool
    flow: bool
    column: int


class TextSpan(NamedTuple):
    """A scalar, key or value, from ``start`` to ``end``, and the pointer of its parent."""

    start: int
    end: int
    holder: Pointer
    column: int


class Edit(NamedTuple):
    """A change of a text: ``replacement`` replaces the part from ``start`` to ``end``."""

    start: int
    end: int
    replacement: str


class DocumentLayout(msgspec.Struct):
    """One document: its values, and all its scalars, keys among them.

    ``fields``: where each top-level key begins. ``end``: where the text ends. ``shared``: it has aliases or merge keys.
    ``block``: it is a mapping without braces.
    """

    leaves: list[ScalarSpan] = []
    spans: list[TextSpan] = []
    fields: dict[str, int] = {}
    end: int = 0
    shared: bool = False
    block: bool = False


class _Open(msgspec.Struct):
    pointer: Pointer
    is_list: bool
    flow: bool
    count: int = 0
    key: str | None = None
    column: int = 0


def layout_of(raw: bytes, indexes: Collection[int], *, is_json: bool = False) -> dict[int, DocumentLayout]:
    """The documents with an index (``Document.index``) in ``indexes``, as far as the reader reads the file.

    Everything after ``MOST_SCALARS`` is omitted. Positions refer to ``raw`` after ``fix_json_surrogates``.
    """
    layouts: dict[int, DocumentLayout] = {}
    stream = EventStream(raw, is_json=is_json)
    scalars = 0
    with suppress(*ENDS):
        for index in range(max(indexes, default=-1) + 1):
            root = stream.document()
            if root is not None and index in indexes:
                layouts[index] = part = _build_document_layout(stream.next, root)
                scalars += len(part.spans)
            if scalars > MOST_SCALARS:
                break
    return layouts


def mac_value(leaf: ScalarSpan, value: Scalar) -> Scalar:
    """``value`` as SOPS reads the text of ``leaf``: dates become timestamps, and every number is parsed."""
    if not leaf.plain:
        return value
    moment = _normalize_timestamp(leaf.text)
    if moment:
        return moment
    read = parse_plain_scalar(leaf.text)
    return value if isinstance(read, ScalarProblem) else read


def _normalize_timestamp(text: str) -> str:
    """A date or time in the form of RFC 3339; "" if ``text`` is neither."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return ""
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return ""
    zone = match[8] or "Z"
    fraction = (match[7] or "").rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}{'Z' if zone in ('+00:00', '-00:00') else zone}"


def _build_document_layout(get: Any, event: Any) -> DocumentLayout:
    part = DocumentLayout(block=type(event) is MappingStartEvent and not event.flow_style)
    for step in _walk_nodes(get, event, part):
        part.end = step
    return part


def _walk_nodes(get: Any, event: Any, part: DocumentLayout) -> Iterator[int]:
    """Record every scalar of a document; yields where each node begins."""
    stack: list[_Open] = []
    while True:
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            stack.pop()
        elif kind is ScalarEvent:
            _record_scalar(event, stack, part)
            if len(part.spans) > MOST_SCALARS:
                raise LimitReached
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            pointer = _get_next_pointer(stack[-1]) if stack else ()
            stack.append(_Open(pointer, kind is SequenceStartEvent, bool(event.flow_style)))
        elif kind is AliasEvent:
            part.shared = True
            if stack:
                _get_next_pointer(stack[-1])
        yield event.start_mark.index
        if not stack:
            return
        event = get()


def _record_scalar(event: Any, stack: list[_Open], part: DocumentLayout) -> None:
    start, end = event.start_mark.index, event.end_mark.index
    if not stack:
        return
    parent = stack[-1]
    part.spans.append(TextSpan(start, end, parent.pointer, event.start_mark.column))
    if not parent.is_list and parent.key is None:
        parent.key, parent.column = event.value, event.start_mark.column
        part.shared |= event.value == MERGE_KEY and not event.style
        if len(stack) == 1:
            part.fields.setdefault(event.value, start)
        return
    if parent.is_list:
        parent.column = event.start_mark.column
    pointer = _get_next_pointer(parent)
    unmarked = not event.style and not event.tag
    part.leaves.append(ScalarSpan(pointer, event.value, start, end, unmarked, parent.flow, parent.column))


def _get_next_pointer(parent: _Open) -> Pointer:
    """The pointer of the next node of ``parent``; a key that is not a scalar counts as empty."""
    if parent.is_list:
        parent.count += 1
        return (*parent.pointer, parent.count - 1)
    if parent.key is None:
        parent.key = ""
        return (*parent.pointer, "")
    pointer = (*parent.pointer, parent.key)
    parent.key = None
    return pointer
