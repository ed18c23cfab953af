"""Schedules in the words of Kubernetes have the same times as here."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconciler.engines.kubernetes.rendering.schedules import convert_schedule
from reconciler.errors import ParseError
from reconciler.model.cron import Cron


@pytest.mark.parametrize(
    ("written", "converted"),
    [
        ("30 2 * * mon-fri", "30 2 * * mon-fri"),
        ("0 0 1,15 * mon", "0 0 1,15 * mon"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 */2 * *", "0 0 */2 * *"),
        ("0 0 */2 * 0-6", "0 0 */2 * *"),
        ("0 0 1-31 * mon", "0 0 * * *"),
        ("0 0 */2 * mon", None),
        ("0 0 1 * */2", None),
    ],
)
def test_a_schedule_has_the_same_times(written: str, converted: str | None) -> None:
    assert convert_schedule(written) == converted


def cron_of_kubernetes(text: str) -> Cron:
    """The times of a schedule as the library in Kubernetes reads them: it knows a star only with the step 1."""
    fields = text.split()
    starred = [re.fullmatch(r"\*(/1)?", part) is not None for field in (2, 4) for part in [fields[field]]]
    assert "7" not in re.sub(r"/\d+", "", fields[4])
    cron = Cron.parse(text)
    return Cron(cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays, not any(starred))


DAYS = st.sampled_from(["*", "*/1", "*/2", "1", "1-31", "5,20", "31"])
WEEKDAYS = st.sampled_from(["*", "*/1", "*/2", "*/7", "0-6", "0-7", "1-7/2", "mon", "7", "fri,7", "sun-sat"])


@given(DAYS, WEEKDAYS)
def test_every_combination_of_days_matches_the_same_minutes(days: str, weekdays: str) -> None:
    text = f"17 3 {days} * {weekdays}"
    try:
        here = Cron.parse(text)
    except ParseError:
        assume(False)
    converted = convert_schedule(text)
    assume(converted is not None)
    assert converted is not None
    there, minute = cron_of_kubernetes(converted), 29_000_000
    for _ in range(50):
        following = here.next_after(minute)
        assert following == there.next_after(minute), converted
        assert following is not None
        minute = following
