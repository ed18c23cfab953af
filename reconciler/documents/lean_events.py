"""Classes for the events of PyYAML's C parser that are cheaper to create: for decoding processes only.

The parser creates an event by calling a class that it finds by name in its module. Those classes are written in
Python, and creating them is a third of the cost of parsing a manifest. A process that only decodes replaces the five
frequent ones by structs with the same fields in the same order. All other processes leave PyYAML unchanged.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from yaml import _yaml, events
from yaml._yaml import CParser

IMPORTED = "reconciler.documents.events"
"""The module of PyYAML that looks up the classes of events once."""


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


def install_lean_events() -> bool:
    """Replace PyYAML's classes by the lean ones, before any import of those; False if that has no effect.

    It has none in a process that has already imported them, and with a release of PyYAML that creates its events in
    another way. Both are only slower.
    """
    if IMPORTED in sys.modules:
        return False
    own = {name: getattr(_yaml, name, None) for name in _LEAN}
    if None in own.values():
        return False
    vars(_yaml).update(_LEAN)
    try:
        taken = _uses_lean_events()
    except TypeError:
        taken = False
    if taken:
        vars(events).update(_LEAN)
    else:
        vars(_yaml).update(own)
    return taken


def _uses_lean_events() -> bool:
    """Whether the parser creates its events from the lean classes."""
    get = CParser(b"{a: [b]}").get_event
    kinds = [type(get()) for _ in range(8)]
    lean = [_MappingStart, _Scalar, _SequenceStart, _Scalar, _SequenceEnd, _MappingEnd]
    return kinds == [events.StreamStartEvent, events.DocumentStartEvent, *lean]
