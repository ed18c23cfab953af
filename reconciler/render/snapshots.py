"""Snapshots of volumes as a table, and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.engines.volumes import PROVEN, VolumeSnapshot
from reconciler.render.layout import columns, strip_control
from reconciler.times import age, parse_time

_HEADING = ("KEY", "LOCATION", "VOLUME", "NAME", "AGE", "SIZE", "EXPIRES", "PROVEN", "TAGS")


def snapshot_table(found: Sequence[VolumeSnapshot], now: float) -> str:
    """A line for each snapshot below a heading; ``""`` if there are none."""
    return columns([_HEADING, *(_row(each, now) for each in found)]) if found else ""


def _row(found: VolumeSnapshot, now: float) -> list[str]:
    snapshot = found.snapshot
    shown = {name: value for name, value in snapshot.tags.items() if name != PROVEN}
    tags = " ".join(f"{name}={value}" for name, value in sorted(shown.items())) or "-"
    proven = f"{age} ago" if (age := _past(snapshot.tags.get(PROVEN, ""), now)) != "-" else "never"
    size, past, left = f"{snapshot.size:g} GB", _past(snapshot.created, now), _left(snapshot.expires, now)
    row = (str(found.key), found.location, str(found.index), snapshot.name, past, size, left, proven, tags)
    return [strip_control(each) for each in row]


def snapshot_document(found: VolumeSnapshot) -> dict[str, Any]:
    """A snapshot as JSON values; ``size`` is in GB, ``expires`` is null for a permanent one."""
    snapshot = found.snapshot
    return {
        "key": str(found.key),
        "location": found.location,
        "volumeIndex": found.index,
        "name": snapshot.name,
        "created": snapshot.created,
        "size": snapshot.size,
        "expires": snapshot.expires or None,
        "tags": snapshot.tags,
    }


def _past(created: str, now: float) -> str:
    return age(max(0.0, now - at)) if (at := _seconds(created)) is not None else "-"


def _left(expires: str, now: float) -> str:
    at = _seconds(expires)
    if at is None:
        return "never"
    return f"in {age(at - now)}" if at > now else "due"


def _seconds(moment: str) -> float | None:
    try:
        return parse_time(moment)
    except ValueError:
        return None
