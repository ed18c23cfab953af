"""Times and spans of time as text, and back."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

FIRST_DAY = 1_764_547_200.0
"""2025-12-01T00:00:00Z: an earlier time is that of a host that did not know the time yet, and nothing expires by it."""

DURATIONS = "a duration such as 500ms, 20s or 1h30m, or a number of seconds"
"""What ``parse_duration`` takes, for messages."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_PART = r"([0-9]{1,12}(?:\.[0-9]+)?)"
_PARTS = re.compile(rf"{_PART}(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PARTS.pattern}){{1,5}}|{_PART}")


def format_iso_time(seconds: float) -> str:
    """Seconds since the epoch as ``2026-01-31T12:00:00Z``."""
    # A tenth of the cost of strftime, which pages of lists notice.
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat(timespec='seconds')[:19]}Z"


def iso_milliseconds(milliseconds: int) -> str:
    """Milliseconds since the epoch as ``2026-01-31T12:00:00.250Z``."""
    return f"{format_iso_time(milliseconds // 1000)[:-1]}.{milliseconds % 1000:03}Z"


def parse_time(text: str) -> float:
    """Parse a time such as ``2026-01-31T12:00:00Z`` (default UTC) into seconds since the epoch. Raises ValueError."""
    at = datetime.fromisoformat(text)
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    format_iso_time(seconds)  # An offset, or a last fraction of a second, can lead to a year that no time has.
    return seconds


def parse_duration(text: str) -> float:
    """A duration such as ``500ms``, ``30s``, ``1h30m``, ``1.5h`` or ``2d``, or a plain number of seconds, in seconds.

    Raises ValueError.
    """
    if _DURATION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not {DURATIONS}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text) or [(text, "")])


def parse_past(text: str, now: float) -> float:
    """A time, or an age such as ``30m`` before ``now``, in seconds since the epoch. Raises ValueError."""
    try:
        return parse_time(text)
    except ValueError:
        return max(0.0, now - parse_duration(text))


def parse_future(text: str, now: float) -> float:
    """A time, or how long after ``now``, in seconds since the epoch. Raises ValueError, also beyond the last year."""
    try:
        return parse_time(text)
    except ValueError:
        end = now + parse_duration(text)
    try:
        format_iso_time(end)
    except (OverflowError, OSError):
        raise ValueError(f"{text!r} is beyond the last year") from None
    return end


def format_short_duration(seconds: float) -> str:
    """A span of time for a narrow column: ``45s``, ``12m``, ``5h``, ``3d``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def format_duration(seconds: float) -> str:
    """A span of time for a sentence: ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    for limit, unit, word in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / unit:.0f} {word}"
    return f"{seconds / 86_400:.0f} days"


SOON_SECONDS = 14 * 86_400.0
"""Seconds before its end in which a certificate expires soon."""

SOON_SHARE = 1 / 6
"""The part of its life that counts instead for a certificate with a short one."""


def is_near_end(begin: float, end: float, now: float) -> bool:
    """Whether a certificate that is valid from ``begin`` to ``end`` should have been replaced by now."""
    return end - now <= min(SOON_SECONDS, (end - begin) * SOON_SHARE)


def is_time_zone(name: str) -> bool:
    """Whether this host knows the time zone ``name``, such as ``Europe/Berlin``."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return False
    return True


class ExpiryTime(NamedTuple):
    """The time by which things expire; a clock that was set destroys nothing before it has held for an hour.

    ``now`` is what the clock shows, and ``steady`` what it would show if it had not been set. What was made before
    ``since`` expires by the earlier of both; what was made after it, under the clock of now, by ``now``. All are in
    seconds since the epoch. ``jump`` are the seconds by which it was set then, at least; 0 if that is not certain. Only
    if it ``is_new``, this program is the first one that has seen it.
    """

    now: float
    steady: float
    since: float = math.inf
    jump: float = 0.0
    is_new: bool = True

    @property
    def is_steady(self) -> bool:
        """Whether the clock was not set within the last hour."""
        return self.since == math.inf

    @property
    def latest(self) -> float:
        """The time from which a new thing lasts: if the clock is behind, it must not be over when that is right."""
        return max(self.now, self.steady)

    def of(self, creation: float) -> float:
        """The time by which a thing expires that was made at ``creation``."""
        return self.now if creation >= self.since else min(self.now, self.steady)

    def is_over(self, until: float, creation: float) -> bool:
        """Whether a thing that was made at ``creation`` and ends at ``until`` may be destroyed."""
        return until <= self.of(creation)
