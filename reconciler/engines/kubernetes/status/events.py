"""Events of a cluster by the object that they are about, whichever of the two APIs they come from; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    name_of,
    read_mapping,
    read_number,
    read_seconds,
    read_text,
    shorten_text,
)

_CONTAINER = re.compile(r"spec\.(?:initContainers|containers|ephemeralContainers)\{(.+)\}")

_TIMES = (
    ("series", "lastObservedTime"),
    ("lastTimestamp",),
    ("deprecatedLastTimestamp",),
    ("eventTime",),
    ("firstTimestamp",),
    ("metadata", "creationTimestamp"),
)
"""Where an event has its time, the last one first."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """An event: ``at`` is when it happened last, in seconds since the epoch; ``count`` is how often.

    ``uid`` is that of its object, "" if the event has none; ``container`` is "" unless it is about one.
    """

    reason: str
    message: str
    at: float
    count: int = 1
    uid: str = ""
    container: str = ""


class ObjectName(msgspec.Struct, frozen=True, order=True):
    """The kind and the name of an object within a namespace."""

    kind: str
    name: str


EventIndex = Mapping[ObjectName, Sequence[ClusterEvent]]
"""The events by object, the newest first."""


def index_events(parts: Iterable[ObjectPart]) -> EventIndex:
    """The events of v1 and of events.k8s.io by the object that each is about."""
    by_object: dict[ObjectName, list[ClusterEvent]] = defaultdict(list)
    for part in parts:
        target = read_mapping(part, "involvedObject") or read_mapping(part, "regarding")
        by_object[ObjectName(read_text(target, "kind"), read_text(target, "name"))].append(_read_event(part, target))
    return {name: sorted(events, key=lambda event: event.at, reverse=True) for name, events in by_object.items()}


def list_events(index: EventIndex, part: ObjectPart, kind: str = "") -> Sequence[ClusterEvent]:
    """The events of an object, the newest first; none of an earlier object that had the same name."""
    uid = read_text(part, "metadata", "uid")
    events = index.get(ObjectName(kind or read_text(part, "kind"), name_of(part)), ())
    return [event for event in events if not (uid and event.uid and event.uid != uid)]


def find_event(events: Iterable[ClusterEvent], *reasons: str, container: str = "") -> ClusterEvent | None:
    """The first of ``events`` with one of ``reasons``, about ``container`` if that is not ""."""
    matching = (event for event in events if event.reason in reasons)
    return next((event for event in matching if container in ("", event.container)), None)


def _read_event(part: ObjectPart, target: ObjectPart) -> ClusterEvent:
    times = (read_seconds(part, *path) for path in _TIMES)
    counts = (read_number(part, "series", "count"), read_number(part, "count"), read_number(part, "deprecatedCount"))
    container = _CONTAINER.fullmatch(read_text(target, "fieldPath"))
    return ClusterEvent(
        reason=read_text(part, "reason"),
        message=shorten_text(read_text(part, "message") or read_text(part, "note")),
        at=next(filter(None, times), 0.0),
        count=next(filter(None, counts), 1),
        uid=read_text(target, "uid"),
        container=container[1] if container else "",
    )
