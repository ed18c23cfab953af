"""The calendar in whole days since 1970-01-01, by integer arithmetic alone: it knows no clock and no time zone."""

from __future__ import annotations

_ERA = 146_097
"""Days in 400 years, after which the calendar repeats itself."""
_TO_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def first_of(year: int, month: int) -> int:
    """The first day of a month."""
    # Years begin in March here, so that the leap day is the last of its year.
    year, shifted = (year, month - 3) if month > 2 else (year - 1, month + 9)
    era, of_era = divmod(year, 400)
    days = of_era * 365 + of_era // 4 - of_era // 100 + (153 * shifted + 2) // 5
    return era * _ERA + days - _TO_EPOCH


def day_of(day: int) -> tuple[int, int, int]:
    """Year, month (1 to 12) and day of the month (from 1) of a day."""
    era, of_era = divmod(day + _TO_EPOCH, _ERA)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def days_in(year: int, month: int) -> int:
    """How many days a month has."""
    leap = month == 2 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return _LENGTHS[month] + leap


def weekday_of(day: int) -> int:
    """0 for Sunday to 6 for Saturday."""
    return (day + 4) % 7
