"""Schedules mean what Debian's cron, cronsim and croniter take them for, in each minute of a year.

A schedule selects days, hours and minutes independently of each other: where all three agree, every minute of the year
does. Those of this project are compared together as well.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile

import pytest

from reconciler.model.cron import Cron, CronError
from tests.model.test_cron import EPOCH, NAMES
from tests.support.sandbox import ROOT

BEGIN = datetime(2028, 1, 1, tzinfo=UTC)
"""A leap year."""
END = BEGIN.replace(year=2029)
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))

Times = Callable[[str, datetime], Iterator[datetime]]


def ours(text: str, begin: datetime) -> Iterator[datetime]:
    """The times from ``begin`` on, by this project."""
    schedule, minute = Cron.parse(text), int((begin - EPOCH).total_seconds()) // 60 - 1
    while (found := schedule.next_after(minute)) is not None:
        minute = found
        yield EPOCH + timedelta(minutes=minute)


def by_cronsim(text: str, begin: datetime) -> Iterator[datetime]:
    """The same by cronsim, which follows Debian's cron."""
    found: Iterator[datetime] = importlib.import_module("cronsim").CronSim(text, begin - timedelta(minutes=1))
    return found


def by_croniter(text: str, begin: datetime) -> Iterator[datetime]:
    """The same by croniter. Without its option it joins ``*/5`` with the other day field by OR, and cron by AND."""
    module, before = importlib.import_module("croniter"), (begin - timedelta(minutes=1)).timestamp()
    times = module.croniter(text, before, ret_type=float, implement_cron_bug=True)
    while True:
        yield EPOCH + timedelta(seconds=times.get_next())


def by_the_manual(text: str, begin: datetime) -> Iterator[datetime]:
    """The same, minute by minute, by the words of Debian's crontab(5)."""
    fields = [values(part, *bounds) for part, bounds in zip(text.split(), FIELDS, strict=True)]
    is_open = any(text.split()[place].startswith("*") for place in (2, 4))
    for day in (begin + timedelta(days=number) for number in range(366)):
        of_month, of_week = day.day in fields[2], day.isoweekday() % 7 in fields[4]
        if day.month in fields[3] and (of_month and of_week if is_open else of_month or of_week):
            yield from (day.replace(hour=hour, minute=at) for hour in sorted(fields[1]) for at in sorted(fields[0]))


def values(text: str, kind: str, low: int, high: int) -> set[int]:
    """The values of one field, read in the plainest way; 7 is Sunday."""
    numbers: set[int] = set()
    for entry in text.split(","):
        span, _, step = entry.partition("/")
        ends = [number(each, kind) for each in span.split("-")] if span != "*" else [low, high]
        numbers.update(range(ends[0], ends[-1] + 1, int(step or 1)))
    return {each % 7 for each in numbers} if kind == "weekday" else numbers


def number(text: str, kind: str) -> int:
    """A number, or the number of a name."""
    return int(text) if text.isdigit() else NAMES[kind].index(text.lower())


def generated(seed: int) -> str:
    """An expression with lists, ranges, steps and names."""
    rng = random.Random(seed)

    def spelled(value: int, kind: str) -> str:
        return rng.choice([str(value), NAMES[kind][value].upper()]) if kind in NAMES else str(value)

    def entry(kind: str, low: int, high: int) -> str:
        form, (start, end) = rng.randrange(3), sorted(rng.sample(range(low, high + 1), 2))
        step = rng.choice(["", f"/{rng.randint(2, min(7, high - low))}"])
        spans = (spelled(start, kind), f"*{step}", f"{spelled(start, kind)}-{spelled(end, kind)}{step}")
        return spans[form]

    def field(kind: str, low: int, high: int) -> str:
        first = entry(kind, low, high)
        # A star in a list: cron looks at the first character only, the libraries at the whole field.
        more = [] if first.startswith("*") else [each for each in [entry(kind, low, high)] if "*" not in each]
        return rng.choice(["*", first, ",".join([first, *more])])

    return " ".join(field(*bounds) for bounds in FIELDS)


@lru_cache(maxsize=10_000)
def year(times: Times, text: str) -> list[datetime]:
    """All times of the year; many schedules have the same minutes, hours or days."""
    return list(takewhile(END.__gt__, times(text, BEGIN)))


def check(seeds: range) -> None:
    """Compare the days of a year, the hours of a day and the minutes of an hour by all four, and days by two."""
    for text in map(generated, seeds):
        minute, hour, *day = text.split()
        parts = (" ".join(["0 0", *day]), f"0 {hour} 1 1 *", f"{minute} 0 1 1 *")
        for part in parts:
            expected = year(by_the_manual, part)
            for times in (ours, by_cronsim, by_croniter) if expected else (ours,):
                assert (part, times.__name__, year(times, part)) == (part, times.__name__, expected)
        clock = f"{minute} {hour} 1 1 *"
        assert (clock, year(ours, clock)) == (clock, year(by_the_manual, clock))


def test_generated_schedules_agree_with_cron_and_two_libraries() -> None:
    check(range(8))


@pytest.mark.slow
def test_five_hundred_schedules_agree_with_cron_and_two_libraries() -> None:
    check(range(500))


@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("0 0 */5 * 1", "croniter alone joins a day field that begins with a star by OR; Debian's cron joins by AND"),
        ("0 0 1-5 * sun", "none: two restricted day fields are joined by OR"),
        ("0 0 29 2 *", "none: 29 February comes in leap years"),
        ("0 0 * * 5-7", "none: 7 is Sunday"),
    ],
)
def test_where_libraries_differ_cron_is_right(text: str, differs: str) -> None:
    assert year(ours, text) == year(by_the_manual, text) == year(by_cronsim, text)
    alone = importlib.import_module("croniter").croniter(text, BEGIN - timedelta(minutes=1))
    same = [alone.get_next(datetime) for _ in year(ours, text)] == year(ours, text)
    assert same == differs.startswith("none")


DIFFERENCES = (
    ("0 0 ? * mon", "", "", "0 0 * * mon"),
    ("5/15 * * * *", "", "5-59/15 * * * *", "5-59/15 * * * *"),
    ("*/90 * * * *", "", "0 * * * *", "0 * * * *"),
    ("0 0 * * 7", "0 0 * * sun", "0 0 * * sun", "0 0 * * sun"),
    ("@daily", "", "", "0 0 * * *"),
    ("@every 5m", "", "", ""),
    ("TZ=Europe/Berlin 0 0 * * *", "", "", ""),
)
"""A schedule, and what it is for this project, cronsim and croniter: "" where it is refused."""


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row[0])
def test_what_the_page_states_about_others_is_true(row: tuple[str, ...]) -> None:
    text, *meanings = row
    assert f"| `{text}` |" in (ROOT / "docs/platform/fields.md").read_text()
    for times, meaning in zip((ours, by_cronsim, by_croniter), meanings, strict=True):
        if meaning:
            assert list(islice(times(text, BEGIN), 20)) == list(islice(ours(meaning, BEGIN), 20))
        else:
            with pytest.raises((CronError, ValueError, importlib.import_module("cronsim").CronSimError)):
                next(times(text, BEGIN))
