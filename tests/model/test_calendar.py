"""Days as numbers, held against the standard library's calendar."""

from __future__ import annotations

from calendar import monthrange
from datetime import date

import pytest

from reconciler.model.calendar import day_of, days_in, first_of, weekday_of

EPOCH = date(1970, 1, 1).toordinal()
TWO_ERAS = range(date(1600, 1, 1).toordinal(), date(2401, 1, 1).toordinal())


def test_a_day_has_the_date_that_the_standard_library_gives_it() -> None:
    for ordinal in TWO_ERAS:
        expected = date.fromordinal(ordinal)
        assert day_of(ordinal - EPOCH) == (expected.year, expected.month, expected.day)


def test_a_day_has_the_weekday_that_the_standard_library_gives_it() -> None:
    assert all(weekday_of(ordinal - EPOCH) == date.fromordinal(ordinal).isoweekday() % 7 for ordinal in TWO_ERAS)


@pytest.mark.parametrize("month", range(1, 13))
def test_a_month_begins_and_ends_where_the_standard_library_says(month: int) -> None:
    for year in range(1600, 2401):
        assert first_of(year, month) == date(year, month, 1).toordinal() - EPOCH
        assert days_in(year, month) == monthrange(year, month)[1]
