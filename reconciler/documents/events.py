"""The events of PyYAML's C parser, the only way in which this program reads YAML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from yaml import Mark
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

__all__ = [
    "AliasEvent",
    "CParser",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "Event",
    "MappingEndEvent",
    "MappingStartEvent",
    "NodeEvent",
    "Parser",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "StreamStartEvent",
    "is_empty",
]


class Event(Protocol):
    """Any event; its marks count from 0."""

    start_mark: Mark
    end_mark: Mark


class NodeEvent(Event, Protocol):
    """An event that begins a node."""

    anchor: str | None


class Parser(Protocol):
    """What reads a file, event by event."""

    @property
    def get_event(self) -> Callable[[], Any]:
        """Returns the next event."""


def is_empty(root: Any) -> bool:
    """Whether a document with the first node ``root`` is empty."""
    return type(root) is ScalarEvent and not (root.value or root.style or root.tag or root.anchor)
