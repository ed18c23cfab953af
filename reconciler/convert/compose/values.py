"""Values of compose files: texts that variables may have made of numbers, durations and sizes."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from reconciler.convert.tracked_value import TrackedValue

_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|s|m|h|d|w)){1,20}")
_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h|d|w)")
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
    "w": Fraction(604800),
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([kmgtp]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_FLAGS = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), True),
    **dict.fromkeys(("false", "no", "off", "n", "0", ""), False),
}


class Field(TrackedValue):
    """A value of a compose file. No message about one has its value: a variable may have put a secret there."""

    __slots__ = ()

    def text(self, default: str = "") -> str:
        """The text; numbers and booleans as text, ``default`` where it is not set."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return self.amount() if isinstance(self.value, int | float) else super().text(default)

    def number(self) -> int | None:
        """The whole number, also as text; None where it is not set."""
        if self.value in (None, ""):
            return None
        if isinstance(self.value, str):
            if _NUMBER.fullmatch(self.value):
                return int(self.value)
            self.add_note("convert-malformed", f"`{self.at[-1]}` is not a whole number")
            return None
        return super().number()

    def flag(self) -> bool:
        """Whether it is true, also as text; false where it is not set."""
        if isinstance(self.value, str) and self.value.lower() in _FLAGS:
            return _FLAGS[self.value.lower()]
        return super().flag()

    def seconds(self) -> int | None:
        """The duration in whole seconds, rounded up; None where it is not set."""
        text = self.text()
        if not text:
            return None
        if not _DURATION.fullmatch(text):
            self.add_note("convert-malformed", f"`{self.at[-1]}` is not a duration such as 1m30s")
            return None
        return ceil(sum(_parse_decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))

    def size(self) -> Fraction | None:
        """The size in bytes; None where it is not set."""
        text = self.text()
        match = _SIZE.fullmatch(text)
        if match is None and text:
            self.add_note("convert-malformed", f"`{self.at[-1]}` is not a size such as 512m")
        return _parse_decimal(match[1]) * (1 << _POWERS[match[2].lower()]) if match else None

    def cores(self) -> Fraction | None:
        """A number of cores; None where it is not set."""
        text = self.text()
        if text and not _DECIMAL.fullmatch(text):
            self.add_note("convert-malformed", f"`{self.at[-1]}` is not a number of cores such as 0.5")
            return None
        return _parse_decimal(text) if text else None


def _parse_decimal(text: str) -> Fraction:
    whole, _, digits = text.partition(".")
    digits = digits.partition(".")[0]
    return Fraction(int(f"{whole or 0}{digits}"), 10 ** len(digits))
