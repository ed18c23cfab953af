"""Times and ages that a person types: ``2027-01-31T12:00:00Z``, ``30m``."""

from __future__ import annotations

import time

from reconciler.errors import UsageError
from reconciler.times import DURATIONS, format_iso_time, parse_duration, parse_future, parse_past


def parse_length(text: str, option: str) -> float:
    """The seconds of a duration such as ``500ms`` or ``30s``, or of a plain number. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"{option} {text}: write {DURATIONS}") from None


def past_seconds(text: str, option: str) -> float:
    """Seconds since the epoch of a time, or of so long ago. Raises UsageError."""
    try:
        return parse_past(text, time.time())
    except ValueError:
        raise UsageError(f"{option} {text}: write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d") from None


def future_time(text: str, option: str) -> str:
    """A time in ISO 8601, as ``text`` gives it or so long from now. Raises UsageError."""
    try:
        return format_iso_time(parse_future(text, time.time()))
    except ValueError:
        message = f"{option} {text}: write a time such as 2027-01-31T12:00:00Z, or how long: 24h, 30d"
        raise UsageError(message) from None
