"""The due times of schedules, for every engine: the newest one runs, and older ones were missed; pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from reconciler.model.cron import Cron
from reconciler.times import format_iso_time

AHEAD = 5
"""Minutes by which the clock may be set back before a schedule begins anew; it knows what has run."""

MOST_COUNTED = 1000
"""Missed times beyond this number are not counted one by one."""


class DueTimes(NamedTuple):
    """The ``first`` and the ``newest`` due minute since the epoch of the schedule ``cron``."""

    cron: Cron
    first: int
    newest: int


@lru_cache(maxsize=4096)
def parse_schedule(text: str) -> Cron:
    """The schedule ``text``. Raises CronError."""
    return Cron.parse(text)


def begins_anew(schedule: str, former: str, checked: int, minute: int) -> bool:
    """Whether ``schedule`` begins at ``minute``: it has changed since ``checked``, or the clock was set back since.

    A clock that was ahead must not stop the schedule until that time comes again.
    """
    return schedule != former or checked - minute > AHEAD


def due_times(schedule: str, checked: int, minute: int) -> DueTimes | None:
    """What is due of ``schedule`` after the minute ``checked`` up to ``minute``; None for nothing."""
    first = next_due(schedule, checked)
    if first is None or first > minute:
        return None
    cron = parse_schedule(schedule)
    return DueTimes(cron, first, newest_due(cron, first, minute))


def next_due(schedule: str, checked: int) -> int | None:
    """The first due minute after ``checked``; None if there is none, or nothing is scheduled."""
    return parse_schedule(schedule).next_after(checked) if schedule else None


def newest_due(cron: Cron, first: int, now: int) -> int:
    """The last due minute up to ``now``, by bisection: the cost does not depend on how many there are."""
    low, high = first, now
    while low < high:
        middle = (low + high + 1) // 2
        due = cron.next_after(middle - 1)
        if due is not None and due <= now:
            low = due
        else:
            high = middle - 1
    return low


def missed_message(times: DueTimes, then: str) -> str:
    """What was missed before the newest time, which ``then`` names the fate of; "" if nothing was."""
    count, due = 0, times.first
    while due < times.newest and count < MOST_COUNTED:
        count, due = count + 1, times.cron.next_after(due) or times.newest
    if not count:
        return ""
    number = f"more than {count}" if due < times.newest else str(count)
    first, newest = format_minute(times.first), format_minute(times.newest)
    return f"{number} scheduled executions since {first} were missed; {newest} {then}"


def format_minute(minute: int) -> str:
    """``minute`` since the epoch as a time."""
    return format_iso_time(minute * 60.0)
