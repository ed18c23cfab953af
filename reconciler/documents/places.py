"""Where the values of a document stand: a second, slower parse, for when something is wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from yaml import YAMLError

from reconciler.documents.braces import as_yaml
from reconciler.documents.compose import is_empty
from reconciler.documents.encoding import refuse
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
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.sink import place

Pointer = tuple[str | int, ...]
Place = tuple[int, int]


class Places:
    """Lines and columns, counted from 1, of the values of one document and of the keys that lead to them."""

    def __init__(self) -> None:
        self._values: dict[Pointer, Place] = {}
        self._keys: dict[Pointer, Place] = {}

    def of(self, pointer: Pointer) -> Place:
        """Where the value at ``pointer`` begins; where there is none (an alias has no parts), its nearest ancestor."""
        while pointer and pointer not in self._values:
            pointer = pointer[:-1]
        return self._values.get(pointer, (1, 1))

    def key(self, pointer: Pointer) -> Place:
        """Where the mapping key that leads to ``pointer`` begins; for an item of a list, the item.

        Where there is no such value, the key or item of the nearest ancestor.
        """
        while pointer and pointer not in self._values:
            pointer = pointer[:-1]
        return self._keys.get(pointer) or self.of(pointer)

    def note(self, pointer: Pointer, value: Place, key: Place | None) -> None:
        """Add the value at ``pointer``; of two with one pointer the first stays."""
        self._values.setdefault(pointer, value)
        if key:
            self._keys.setdefault(pointer, key)


_ENDED = 1 << 62
"""More documents than there are: a parser at its end answers no more, so that whatever is asked next begins anew."""


class Locator:
    """The places in the documents of one file; asked for them in their order it parses the file once."""

    def __init__(self, raw: bytes, limits: Limits = LIMITS) -> None:
        self._raw = as_yaml(raw) if refuse(raw, limits) is None else b""
        self._limits = limits
        self._get: Any = None
        self._passed = _ENDED
        self._places = Places()

    def of(self, index: int) -> Places:
        """The places in the document ``index``, counted as ``Document.index``; as far as it can be parsed."""
        if index < self._passed:
            self._begin()
        if index > self._passed:
            self._places = Places()
            skipped, self._passed = index - self._passed - 1, _ENDED
            with suppress(YAMLError):
                root = _root(self._get, skipped)
                if root is not None:
                    _walk(self._get, root, self._limits, self._places)
                    self._passed = index
        return self._places

    def _begin(self) -> None:
        self._get = CParser(self._raw).get_event
        self._passed = -1


def locate(raw: bytes, index: int, limits: Limits = LIMITS) -> Places:
    """The places in one document of a file; see Locator."""
    return Locator(raw, limits).of(index)


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


@dataclass(slots=True)
class _Open:
    """A container being walked: the number of its next item, or the key whose value comes next."""

    pointer: Pointer
    is_list: bool
    count: int = 0
    key: str | None = None
    key_place: Place | None = None


def _walk(get: Any, event: Any, limits: Limits, places: Places) -> None:
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


def _root_pointer(event: Any, places: Places) -> Pointer:
    places.note((), place(event), None)
    return ()


def _step(parent: _Open, event: Any, places: Places) -> Pointer:
    """The pointer of the next node of ``parent``, noted unless the node is a key."""
    here = place(event)
    if parent.is_list:
        pointer: Pointer = (*parent.pointer, parent.count)
        parent.count += 1
        places.note(pointer, here, None)
        return pointer
    if parent.key is None:
        parent.key = event.value if type(event) is ScalarEvent else ""
        parent.key_place = here
        return (*parent.pointer, parent.key)
    pointer = (*parent.pointer, parent.key)
    if parent.key_place and here[0] != parent.key_place[0] and is_empty(event):
        # `? key` and no value: the parser puts it before whatever comes next, which may be the end of the file.
        here = parent.key_place
    places.note(pointer, here, parent.key_place)
    parent.key = None
    return pointer
