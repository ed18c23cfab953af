"""Snapshots of volumes as a table, and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reconciler.engines.volumes import PROVEN, VolumeSnapshot
from reconciler.render.layout import strip_control, table_text
from reconciler.render.style import TextStyle
from reconciler.times import format_short_duration, parse_time

_HEADING = ("KEY", "LOCATION", "VOLUME", "NAME", "AGE", "SIZE", "EXPIRES", "PROVEN", "TAGS")


def snapshot_table(snapshots: Iterable[VolumeSnapshot], now: float, style: TextStyle) -> str:
    """A line for each snapshot below a heading; ``""`` if there are none."""
    return table_text(_HEADING, (_format_snapshot_row(snapshot, now) for snapshot in snapshots), style)


def _format_snapshot_row(volume_snapshot: VolumeSnapshot, now: float) -> list[str]:
    snapshot = volume_snapshot.snapshot
    shown = {name: value for name, value in snapshot.tags.items() if name != PROVEN}
    tags = " ".join(f"{name}={value}" for name, value in sorted(shown.items())) or "-"
    proven = f"{age} ago" if (age := _format_past_time(snapshot.tags.get(PROVEN, ""), now)) != "-" else "never"
    size, past, left = (
        f"{snapshot.size:g} GB",
        _format_past_time(snapshot.created, now),
        _format_time_left(snapshot.expires, now),
    )
    row = (
        str(volume_snapshot.key),
        volume_snapshot.location,
        str(volume_snapshot.index),
        snapshot.name,
        past,
        size,
        left,
        proven,
        tags,
    )
    return [strip_control(text) for text in row]


def snapshot_document(volume_snapshot: VolumeSnapshot) -> dict[str, Any]:
    """A snapshot as JSON values; ``size`` is in GB, ``expires`` is null for a permanent one."""
    snapshot = volume_snapshot.snapshot
    return {
        "key": str(volume_snapshot.key),
        "location": volume_snapshot.location,
        "volumeIndex": volume_snapshot.index,
        "name": snapshot.name,
        "created": snapshot.created,
        "size": snapshot.size,
        "expires": snapshot.expires or None,
        "tags": snapshot.tags,
    }


def _format_past_time(created: str, now: float) -> str:
    return format_short_duration(max(0.0, now - at)) if (at := _parse_seconds(created)) is not None else "-"


def _format_time_left(expires: str, now: float) -> str:
    at = _parse_seconds(expires)
    if at is None:
        return "never"
    return f"in {format_short_duration(at - now)}" if at > now else "due"


def _parse_seconds(moment: str) -> float | None:
    try:
        return parse_time(moment)
    except ValueError:
        return None
