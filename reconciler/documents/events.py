"""The events of PyYAML's C parser, as classes that cost a fraction of its own to make.

The parser makes an event by calling a class that it finds by name in its module. Those classes are written in Python,
and making them was a third of what parsing a manifest cost (133 µs for 1.5 KB, 88 without it). So the five frequent
ones are given to it as structs with the same fields in the same order. Where a release of PyYAML makes its events in
another way, its own classes serve as before, only slower.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from yaml import Mark, _yaml, events
from yaml._yaml import CParser

__all__ = [
    "AliasEvent",
    "CParser",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "Event",
    "MappingEndEvent",
    "MappingStartEvent",
    "NodeEvent",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "is_empty",
]


class Event(Protocol):
    """What every event has: where it begins and ends, counted from 0."""

    start_mark: Mark
    end_mark: Mark


class NodeEvent(Event, Protocol):
    """An event that begins a node."""

    anchor: str | None


class _Scalar(msgspec.Struct, gc=False):
    anchor: Any
    tag: Any
    implicit: Any
    value: Any
    start_mark: Any = None
    end_mark: Any = None
    style: Any = None


class _MappingStart(msgspec.Struct, gc=False):
    anchor: Any
    tag: Any
    implicit: Any
    start_mark: Any = None
    end_mark: Any = None
    flow_style: Any = None


class _SequenceStart(_MappingStart, gc=False):
    pass


class _MappingEnd(msgspec.Struct, gc=False):
    start_mark: Any = None
    end_mark: Any = None


class _SequenceEnd(_MappingEnd, gc=False):
    pass


_LEAN = {
    "ScalarEvent": _Scalar,
    "MappingStartEvent": _MappingStart,
    "SequenceStartEvent": _SequenceStart,
    "MappingEndEvent": _MappingEnd,
    "SequenceEndEvent": _SequenceEnd,
}


def _taken() -> bool:
    """Whether the parser makes its events of the lean classes."""
    get = CParser(b"{a: [b]}").get_event
    made = [type(get()) for _ in range(8)]
    lean = [_MappingStart, _Scalar, _SequenceStart, _Scalar, _SequenceEnd, _MappingEnd]
    return made == [events.StreamStartEvent, events.DocumentStartEvent, *lean]


def _offer() -> bool:
    """Give the parser the lean classes; its own again where it does not take them just so."""
    own = {name: getattr(_yaml, name, None) for name in _LEAN}
    if None in own.values():
        return False
    vars(_yaml).update(_LEAN)
    try:
        taken = _taken()
    except TypeError:
        taken = False
    if not taken:
        vars(_yaml).update(own)
    return taken


IS_LEAN = _offer()
"""Whether the lean classes are in use."""

_classes: dict[str, Any] = _LEAN if IS_LEAN else {name: getattr(events, name) for name in _LEAN}
ScalarEvent = _classes["ScalarEvent"]
MappingStartEvent = _classes["MappingStartEvent"]
SequenceStartEvent = _classes["SequenceStartEvent"]
MappingEndEvent = _classes["MappingEndEvent"]
SequenceEndEvent = _classes["SequenceEndEvent"]
AliasEvent = events.AliasEvent
DocumentStartEvent = events.DocumentStartEvent
DocumentEndEvent = events.DocumentEndEvent
StreamEndEvent = events.StreamEndEvent


def is_empty(root: Any) -> bool:
    """Whether a document whose first node is ``root`` holds nothing at all."""
    return type(root) is ScalarEvent and not (root.value or root.style or root.tag or root.anchor)
