"""The parser's events of one document, walked for the places of its values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from yaml import YAMLError

from reconciler.documents.composer import is_empty
from reconciler.documents.events import (
    CParser,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from reconciler.documents.fault_sink import place
from reconciler.documents.limits import Limits
from reconciler.documents.positions import Pointer, Position, Positions


def events_of(raw: bytes) -> Any:
    """What gives the events of a file, one at each call."""
    return CParser(raw).get_event


def walk(get: Any, skipped: int, limits: Limits, places: Positions) -> bool:
    """Note the places of the document after ``skipped`` more; False where it is not there or cannot be parsed whole."""
    with suppress(YAMLError):
        root = _root(get, skipped)
        if root is not None:
            _walk(get, root, limits, places)
            return True
    return False


def _root(get: Any, index: int) -> Any:
    """The first node of the document ``index``, or None."""
    while type(event := get()) is not StreamEndEvent:
        if type(event) is not DocumentStartEvent:
            continue
        root = get()
        if not is_empty(root):
            index -= 1
        if index < 0:
            return root
    return None


class _Open(msgspec.Struct):
    """A container being walked: the number of its next item, or the key whose value comes next."""

    pointer: Pointer
    is_list: bool
    count: int = 0
    key: str | None = None
    key_place: Position | None = None


def _walk(get: Any, event: Any, limits: Limits, places: Positions) -> None:
    stack: list[_Open] = []
    for _ in range(2 * limits.nodes + 1):
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            stack.pop()
        else:
            pointer = _step(stack[-1], event, places) if stack else _root_pointer(event, places)
            if kind is MappingStartEvent or kind is SequenceStartEvent:
                stack.append(_Open(pointer, kind is SequenceStartEvent))
        if not stack or len(stack) > limits.depth:
            return
        event = get()


def _root_pointer(event: Any, places: Positions) -> Pointer:
    places.add((), place(event), None)
    return ()


def _step(parent: _Open, event: Any, places: Positions) -> Pointer:
    """The pointer of the next node of ``parent``, noted unless the node is a key."""
    here = place(event)
    if parent.is_list:
        pointer: Pointer = (*parent.pointer, parent.count)
        parent.count += 1
        places.add(pointer, here, None)
        return pointer
    if parent.key is None:
        parent.key = event.value if type(event) is ScalarEvent else ""
        parent.key_place = here
        return (*parent.pointer, parent.key)
    pointer = (*parent.pointer, parent.key)
    if parent.key_place and here[0] != parent.key_place[0] and is_empty(event):
        # `? key` and no value: the parser puts it before whatever comes next, which may be the end of the file.
        here = parent.key_place
    places.add(pointer, here, parent.key_place)
    parent.key = None
    return pointer
