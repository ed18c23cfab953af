"""Times and spans of time as text, and back."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """Seconds since the epoch as ``2026-01-31T12:00:00Z``."""
    # A tenth of the cost of strftime, which pages of lists notice.
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat(timespec='seconds')[:19]}Z"


def iso_milliseconds(milliseconds: int) -> str:
    """Milliseconds since the epoch as ``2026-01-31T12:00:00.250Z``."""
    return f"{iso(milliseconds // 1000)[:-1]}.{milliseconds % 1000:03}Z"


def parse_time(text: str) -> float:
    """Parse a time such as ``2026-01-31T12:00:00Z`` (default UTC) into seconds since the epoch. Raises ValueError."""
    at = datetime.fromisoformat(text)
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    iso(seconds)  # An offset, or a last fraction of a second, can lead to a year that no time has.
    return seconds


def age(seconds: float) -> str:
    """A span of time for a narrow column: ``45s``, ``12m``, ``5h``, ``3d``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def ago(seconds: float) -> str:
    """A span of time for a sentence: ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    for limit, unit, word in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / unit:.0f} {word}"
    return f"{seconds / 86_400:.0f} days"
