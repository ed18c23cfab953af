"""Calendar expressions of systemd timers as schedules of cron, where one says the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
}
_NAMES = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAYS = {name: number for number, day in enumerate(_NAMES) for name in (day, day[:3])}
_UTC = ("UTC", "Etc/UTC", "Z")
_ZONE = re.compile(r"[A-Z][A-Za-z_]*(?:/[-+A-Za-z0-9_]+)*|Z")
_PART = re.compile(r"(\*|[0-9]{1,4})(?:\.\.([0-9]{1,4}))?(?:/([0-9]{1,4}))?")
_MOST_LETTERS = 200


class _Bounds(NamedTuple):
    """The least and the most value of a field of cron."""

    least: int
    most: int

    @property
    def whole(self) -> frozenset[int]:
        """All values."""
        return frozenset(range(self.least, self.most + 1))


_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY = _Bounds(0, 59), _Bounds(0, 23), _Bounds(1, 31), _Bounds(1, 12), _Bounds(0, 6)
_BOUNDS = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


class Times(NamedTuple):
    """When a timer elapses: the values of each field of cron. ``is_local``: the hours are those of the machine."""

    fields: tuple[frozenset[int], ...]
    is_local: bool

    @property
    def schedule(self) -> str:
        """The schedule of cron; "" where both days count, of which cron takes either."""
        if self.fields[2] != _DAY.whole and self.fields[4] != _WEEKDAY.whole:
            return ""
        return " ".join(_format_cron_field(values, bounds) for values, bounds in zip(self.fields, _BOUNDS, strict=True))


def read_times(text: str) -> Times | None:
    """The times of an expression; None where cron has no equal, or systemd would not read it."""
    words = _SHORTHANDS.get(text.strip().lower(), text).split() if len(text) <= _MOST_LETTERS else []
    zone = words.pop() if len(words) > 1 and _ZONE.fullmatch(words[-1]) and words[-1].lower() not in _DAYS else ""
    days = words.pop(0) if words and words[0][:1].isalpha() else ""
    date = words.pop(0) if words and "-" in words[0] else "*-*-*"
    time = words.pop(0) if words and ":" in words[0] else "00:00:00"
    if words or not text.strip():
        return None
    *year, month, day = date.split("-")
    hour, minute, *second = time.split(":")
    if year not in ([], ["*"]) or second not in ([], ["0"], ["00"]):
        return None
    parts = ((minute, _MINUTE), (hour, _HOUR), (day, _DAY), (month, _MONTH))
    fields = [
        *(_parse_values(part, bounds) for part, bounds in parts),
        _parse_weekdays(days) if days else _WEEKDAY.whole,
    ]
    is_local = zone not in _UTC and fields[1] != _HOUR.whole
    return Times(tuple(fields), is_local) if all(fields) else None


def merge_times(times: Sequence[Times]) -> Times | None:
    """The times of all expressions of a timer; None where no single schedule of cron has them."""
    first, *others = times
    for entry in others:
        different = [at for at, values in enumerate(entry.fields) if values != first.fields[at]]
        if len(different) > 1:
            return None
        fields = tuple(one | other for one, other in zip(first.fields, entry.fields, strict=True))
        first = Times(fields, first.is_local or entry.is_local)
    return first


def _parse_values(text: str, bounds: _Bounds) -> frozenset[int]:
    """The values of a component such as `0/15`, `1..5` or `1,3`; none where it is not written so."""
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[1] == "*" and match[2]):
            return frozenset()
        start = bounds.least if match[1] == "*" else int(match[1])
        repeats = match[1] == "*" or match[3]
        end = int(match[2]) if match[2] else bounds.most if repeats else start
        step = int(match[3]) if match[3] else 1
        if not (bounds.least <= start <= end <= bounds.most) or not step:
            return frozenset()
        values.update(range(start, end + 1, step))
    return frozenset(values)


def _parse_weekdays(text: str) -> frozenset[int]:
    """The days of `Mon..Fri` or `Sat,Sun`, from Sunday as 0; none where it is not written so."""
    weekdays: set[int] = set()
    for part in text.removesuffix(",").split(","):
        first, dots, last = part.lower().partition("..")
        if first not in _DAYS or (dots and last not in _DAYS):
            return frozenset()
        start = _DAYS[first]
        length = (_DAYS[last] - start) % 7 if dots else 0
        weekdays.update((start + number) % 7 for number in range(length + 1))
    return frozenset(weekdays)


def _format_cron_field(values: frozenset[int], bounds: _Bounds) -> str:
    """A field of cron: `*`, `*/15`, `1-5` or `1,3`."""
    if values == bounds.whole:
        return "*"
    ordered = sorted(values)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1:
        (step,) = steps
        if step > 1 and ordered == list(range(bounds.least, bounds.most + 1, step)):
            return f"*/{step}"
        if step == 1:
            return f"{ordered[0]}-{ordered[-1]}"
    return ",".join(map(str, ordered))
