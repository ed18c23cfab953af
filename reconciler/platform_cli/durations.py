"""Times and ages that a person types: ``2027-01-31T12:00:00Z``, ``30m``."""

from __future__ import annotations

import re
import time

from reconciler.errors import UsageError
from reconciler.times import iso, parse_time

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_length(text: str, option: str) -> float:
    """The seconds of ``30s``, ``5m``, ``1.5h`` or ``2d``. Raises UsageError."""
    parts = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])", text)
    if parts is None:
        raise UsageError(f"{option} {text}: write how long, for example 60s, 5m, 24h or 30d")
    return float(parts[1]) * _UNITS[parts[2]]


def future_time(text: str, option: str) -> str:
    """A time in ISO 8601; an age is so long from now. Raises UsageError."""
    try:
        parse_time(text)
    except ValueError:
        try:
            return iso(time.time() + parse_length(text, option))
        except (UsageError, ValueError, OverflowError, OSError):
            message = f"{option} {text}: write a time such as 2027-01-31T12:00:00Z, or how long: 24h, 30d"
            raise UsageError(message) from None
    return text
