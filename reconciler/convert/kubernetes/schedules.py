"""Converts schedules of CronJobs, which the library robfig/cron reads, to the five fields of cron.

It differs from cron: ``?`` is ``*``, ``5/15`` means ``5-59/15``, a step may be longer than its field, and a day field
``*/n`` is restricted like any other, so that one of two day fields has to match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from reconciler.model.cron import FIELDS, SHORTHANDS

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)", re.DOTALL)
_FIELD = re.compile(r"[-*,/?0-9A-Za-z]+")
_AMOUNT = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_PART = re.compile(rf"({_AMOUNT})(h|ms|m|s|us|µs|ns)")
_EVERY = re.compile(rf"@every\s+((?:(?:{_AMOUNT})(?:h|ms|m|s|us|µs|ns))+)")
_SECONDS = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4
_STEPS = (
    *((step, f"*/{step} * * * *") for step in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
    *((step * 60, f"0 */{step} * * *") for step in (1, 2, 3, 4, 6, 8, 12)),
    (24 * 60, "0 0 * * *"),
    (7 * 24 * 60, "0 0 * * 0"),
)
"""Minutes between two runs, and the schedule that has them; these are all that do."""


class ConvertedSchedule(NamedTuple):
    """Five fields, or "" for what no CronJob may have; the time zone in front of them, and what is not the same."""

    text: str
    zone: str = ""
    change: str = ""


def convert_schedule(text: str) -> ConvertedSchedule:
    """Convert the schedule of a CronJob."""
    match = _ZONE.fullmatch(text.strip())
    zone, rest = match.groups() if match else ("", text.strip())
    if every := _EVERY.fullmatch(rest):
        return _convert_interval(every[1], zone)
    fields = SHORTHANDS.get(rest, rest).split()
    if len(fields) != len(FIELDS) or not all(map(_FIELD.fullmatch, fields)):
        return ConvertedSchedule("", zone)
    entries = [_convert_entries(field, position) for position, field in enumerate(fields)]
    days, weekdays = entries[_DAY_OF_MONTH], entries[_DAY_OF_WEEK]
    if "*" not in (*days, *weekdays):
        # Cron takes a field that begins with a star for one that is open.
        entries[_DAY_OF_MONTH] = [day.replace("*", "1-31") for day in days]
        entries[_DAY_OF_WEEK] = [weekday.replace("*", "0-6") for weekday in weekdays]
    return ConvertedSchedule(" ".join("*" if "*" in entry else ",".join(entry) for entry in entries), zone)


def _convert_entries(field: str, position: int) -> Sequence[str]:
    """The entries of a field in the words of cron."""
    return [_convert_entry(text, position) for text in field.split(",") if text] or [","]


def _convert_entry(entry: str, position: int) -> str:
    low, high = FIELDS[position].low, 6 if position == _DAY_OF_WEEK else FIELDS[position].high
    span, slash, step = entry.replace("?", "*").partition("/")
    if not slash or not step.isdecimal() or int(step[:5]) == 0:
        return f"{span}{slash}{step}"
    if int(step[:5]) == 1 and span == "*":
        return span
    if int(step[:5]) > high - low + 1:
        return str(low) if span == "*" else span.partition("-")[0]
    return f"{span}/{step}" if span == "*" or "-" in span else f"{span}-{high}/{step}"


def _convert_interval(duration: str, zone: str) -> ConvertedSchedule:
    """The schedule with the longest time between two runs that is no longer than ``duration``."""
    seconds = sum(Fraction(f"0{number}") * _SECONDS.get(unit, 0) for number, unit in _PART.findall(duration))
    minutes, text = next((pair for pair in reversed(_STEPS) if pair[0] * 60 <= seconds), _STEPS[0])
    text = text.replace("*/1 ", "* ")
    if minutes * 60 == seconds:
        return ConvertedSchedule(text, zone, f"`@every {duration}` counts from the last run; here it is `{text}`")
    return ConvertedSchedule(text, zone, f"no schedule has a run every {duration}; here it is `{text}`")
