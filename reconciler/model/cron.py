"""A cron expression as a value: its minutes, and the next of them (docs/platform/fields.md#schedules).

Times are whole minutes since 1970-01-01 00:00 UTC; this module reads no clock.
"""

from __future__ import annotations

from datetime import MAXYEAR, date
from typing import Self

import msgspec

from reconciler.errors import ParseError

HOUR = 60
DAY = 24 * HOUR
MONTHS_SEARCHED = 400 * 12 + 1
"""The calendar repeats after 400 years: a day that is not found by then does not exist."""

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(MAXYEAR - 1, 12, 31).toordinal() - _EPOCH
_WEEKS = sum(1 << 7 * week for week in range(6))
_IN_EVERY_MONTH = (1 << 29) - 2
_QUOTED = 30


class CronError(ParseError):
    """The text is no cron expression; the message names the field and the part, ``suggestion`` a correction."""

    def __init__(self, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.suggestion = suggestion


class _Field(msgspec.Struct, frozen=True):
    title: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of the values from ``low`` on."""


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),
)
SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Shorthands of other schedulers, with their five fields."""


class Cron(msgspec.Struct, frozen=True, gc=False):
    """The minutes that an expression selects; each field is a number whose bit N stands for the value N.

    ``either`` means that both day fields are restricted: a day then matches if one of the two does.
    """

    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    either: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse five fields: minute, hour, day of month, month, day of week (0 and 7 are Sunday); names in any case.

        A field is a list of ``*``, values and ranges; ``/N`` after ``*`` or a range selects every Nth value. Raises
        CronError.
        """
        parts = text.split()
        if len(parts) != len(FIELDS):
            raise _make_count_error(parts)
        minutes, hours, days, months, weekdays = (
            _parse_bits(part, field) for part, field in zip(parts, FIELDS, strict=True)
        )
        # As in cron, a field is unrestricted if it begins with a star.
        either = not parts[2].startswith("*") and not parts[4].startswith("*")
        return cls(minutes, hours, days, months, (weekdays | weekdays >> 7) & 0x7F, either)

    @property
    def runs_an_hour(self) -> int:
        """The number of runs in each hour that has any."""
        return self.minutes.bit_count()

    @property
    def comes(self) -> bool:
        """Whether any minute matches; for 30 February, none does."""
        # A day that every month has falls on every day of the week sooner or later.
        return bool(self.days & _IN_EVERY_MONTH) or self.next_after(0) is not None

    def next_after(self, minute: int) -> int | None:
        """The first matching minute after ``minute``; None if there is none, as for 30 February."""
        day, time = divmod(minute + 1, DAY)
        matching_day = self._day_from(day)
        if matching_day == day:
            later = self._time_from(time)
            if later is not None:
                return day * DAY + later
            matching_day = self._day_from(day + 1)
        return (
            None
            if matching_day is None
            else matching_day * DAY + _find_lowest_bit(self.hours) * HOUR + _find_lowest_bit(self.minutes)
        )

    def _time_from(self, time: int) -> int | None:
        """The first matching time of day, in minutes, at or after ``time``."""
        hour, minute = divmod(time, HOUR)
        minutes = _clear_lower_bits(self.minutes, minute)
        if minutes and self.hours >> hour & 1:
            return hour * HOUR + _find_lowest_bit(minutes)
        hours = _clear_lower_bits(self.hours, hour + 1)
        return _find_lowest_bit(hours) * HOUR + _find_lowest_bit(self.minutes) if hours else None

    def _day_from(self, day: int) -> int | None:
        """The first matching day, counted from 1970-01-01, at or after ``day``."""
        if day > _LAST_DAY:
            return None
        begin = date.fromordinal(_EPOCH + day)
        year, month, earliest = begin.year, begin.month, begin.day
        for _ in range(MONTHS_SEARCHED):
            next_year, next_month = (year, month + 1) if month < 12 else (year + 1, 1)
            if self.months >> month & 1:
                first = date(year, month, 1)
                length = (date(next_year, next_month, 1) - first).days
                days = _clear_lower_bits(self._days_of(first.weekday(), length), earliest)
                if days:
                    return first.toordinal() - _EPOCH + _find_lowest_bit(days) - 1
            if next_year == MAXYEAR:
                break
            year, month, earliest = next_year, next_month, 1
        return None

    def _days_of(self, weekday: int, length: int) -> int:
        """The matching days of a month of ``length`` days that begins on ``weekday``, 0 for Monday."""
        weekdays = self.weekdays * _WEEKS >> (weekday + 1) % 7 << 1
        named = self.days | weekdays if self.either else self.days & weekdays
        return named & (1 << length + 1) - 2


def _make_count_error(parts: list[str]) -> CronError:
    titles = ", ".join(field.title for field in FIELDS)
    if len(parts) == 1 and parts[0].startswith("@"):
        meant = SHORTHANDS.get(parts[0].lower())
        message = f"{_quote_text(parts[0])} is a shorthand; a schedule has five fields: {titles}"
        return CronError(message, f"write `{meant}`" if meant else "for example `0 3 * * *`, every day at 3:00")
    count = "1 field" if len(parts) == 1 else f"{len(parts)} fields"
    hint = (
        "seconds and years are no fields of it"
        if len(parts) in (6, 7)
        else "for example `0 3 * * *`, every day at 3:00"
    )
    return CronError(f"the schedule has {count} where there must be five: {titles}", hint)


def _parse_bits(text: str, field: _Field) -> int:
    bits = 0
    for part in text.split(","):
        if not part:
            raise _make_field_error(text, field, "a value is missing beside a comma")
        bits |= _range_bits(part, field)
    return bits


def _range_bits(part: str, field: _Field) -> int:
    """The values of one entry of a list: ``*``, ``N``, ``N-M``, each but ``N`` with ``/STEP``."""
    span, slash, step = part.partition("/")
    low, dash, high = span.partition("-")
    every = _parse_step(step, part, field) if slash else 1
    if span == "*":
        start, end = field.low, field.high
    else:
        start = _parse_value(low, part, field)
        end = _parse_value(high, part, field) if dash else start
    if start > end:
        raise _make_field_error(
            part, field, "the range begins after its end", "" if slash else _suggest_range(start, end, field)
        )
    if slash and not dash and span != "*":
        raise _make_field_error(
            part, field, "a step needs a range before it", f"write `{start}-{_get_last_value(field)}/{step}`"
        )
    return sum(1 << value for value in range(start, end + 1, every))


def _parse_step(text: str, part: str, field: _Field) -> int:
    number = _parse_number(text)
    if not number:
        raise _make_field_error(part, field, "the step must be a whole number, at least 1")
    most = _get_last_value(field) - field.low + 1
    if number > most:
        message = f"the step {_quote_text(text)} is longer than the whole field, which has {most} values"
        raise _make_field_error(part, field, message, f"write a step of at most {most}")
    return number


def _parse_value(text: str, part: str, field: _Field) -> int:
    number = _parse_number(text)
    if number is None:
        name = text.lower()
        if name in field.names:
            return field.low + field.names.index(name)
        raise _make_field_error(part, field, _no_value(text, part, field), _suggest_abbreviation(name, field))
    if not field.low <= number <= field.high:
        bound = f"allowed is {field.low} to {field.high}"
        raise _make_field_error(
            part, field, bound if text == part else f"{_quote_text(text)} is out of bounds, {bound}"
        )
    return number


def _parse_number(text: str) -> int | None:
    """Digits as a number; a very long one becomes 999, which no field allows."""
    if not text.isdecimal() or not text.isascii():
        return None
    return int(text) if len(text) <= 4 else 999


def _no_value(text: str, part: str, field: _Field) -> str:
    if not text:
        return "a value is missing"
    named = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    which = "it" if text == part else _quote_text(text)
    return f"{which} is neither `*` nor {field.low} to {field.high}{named}"


def _suggest_abbreviation(name: str, field: _Field) -> str:
    near = name[:3] if name[:3] in field.names else ""
    return f"write `{near}`" if near else ""


def _suggest_range(start: int, end: int, field: _Field) -> str:
    """``22-2`` → ``22-23,0-2``: the probable range, in the syntax of cron."""
    first = f"{start}-{_get_last_value(field)}" if start < _get_last_value(field) else str(start)
    second = f"{field.low}-{end}" if end > field.low else str(end)
    return f"write `{first},{second}`"


def _get_last_value(field: _Field) -> int:
    """The last value of a field; Sunday counts only as the first day of a week."""
    return 6 if field.names is _WEEKDAYS else field.high


def _make_field_error(part: str, field: _Field, message: str, suggestion: str = "") -> CronError:
    return CronError(f"{field.title} {_quote_text(part)}: {message}", suggestion)


def _quote_text(text: str) -> str:
    shown = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
    return f"`{shown}`" if shown.isprintable() else repr(shown)


def _clear_lower_bits(bits: int, value: int) -> int:
    """``bits`` without those below ``value``."""
    return bits >> value << value


def _find_lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
