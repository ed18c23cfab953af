"""Schedules of cron workloads as Kubernetes reads them (docs/platform/fields.md#schedules)."""

from __future__ import annotations

from reconciler.model.cron import Cron

_EVERY_DAY, _EVERY_WEEKDAY = (1 << 32) - 2, (1 << 7) - 1
_DAYS, _WEEKDAYS = 2, 4
"""The places of the two day fields."""


def convert_schedule(text: str) -> str | None:
    """The schedule ``text`` in the words of Kubernetes, with the same times; None if it has none for them.

    Kubernetes has no day 7, and takes either day field where both are restricted: also if one is ``*/N``, where both
    must match here. Raises CronError.
    """
    cron, fields = Cron.parse(text), text.split()
    any_day, any_weekday = cron.days == _EVERY_DAY, cron.weekdays == _EVERY_WEEKDAY
    if not cron.either and not any_day and not any_weekday:
        return None
    if any_day or (cron.either and any_weekday):
        fields[_DAYS] = "*"
    if any_weekday or (cron.either and any_day):
        fields[_WEEKDAYS] = "*"
    elif "7" in fields[_WEEKDAYS]:
        fields[_WEEKDAYS] = ",".join(str(day) for day in range(7) if cron.weekdays >> day & 1)
    return " ".join(fields)
