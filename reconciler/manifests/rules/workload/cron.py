"""Rules for schedules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.manifests.rules.workload.options import TYPE
from reconciler.model.cron import Cron, CronError
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.volumeset import VolumeSet
from reconciler.model.kinds.workload import Workload

JOB: Pointer = ("spec", "job")
SNAPSHOTS: Pointer = ("spec", "snapshots", "schedule")
REMEMBERED = 100
"""The longest schedule that is cached, in characters, so that long ones cannot fill the memory."""


class _Schedule(NamedTuple):
    """A schedule as written, and its pointer."""

    at: Pointer
    text: str


@register_rule("job-missing", "docs/platform/workload.md#job", Kind.WORKLOAD)
def cron_without_job(workload: Workload) -> Iterator[Flaw]:
    """A cron workload has a `job`.

    Without a schedule it would never start.
    """
    if workload.spec.type == "cron" and workload.spec.job is None:
        hint = 'add `job:` with a schedule, for example `schedule: "0 3 * * *"`'
        yield Flaw(TYPE, "a cron workload needs a `job`", hint, (JOB,))


@register_rule("job-not-cron", "docs/platform/workload.md#job", Kind.WORKLOAD)
def job_of_no_cron(workload: Workload) -> Iterator[Flaw]:
    """Only a cron workload has a `job`.

    Workloads of the other types run all the time, and have no use for a schedule.
    """
    if workload.spec.job is not None and workload.spec.type != "cron":
        message = f"a {workload.spec.type} workload takes no `job`"
        yield Flaw(JOB, message, "write `type: cron`, or remove the job", (TYPE,), on_key=True)


@register_rule("cron-schedule", "docs/platform/fields.md#schedules", Kind.WORKLOAD, Kind.VOLUMESET)
def unreadable_schedule(owner: Workload | VolumeSet) -> Iterator[Flaw]:
    """A schedule is a cron expression: minute, hour, day of month, month and day of week.

    A field is `*`, a value, a range such as `9-17`, or several with commas between; `/N` behind `*` or a range takes
    every Nth value. Months and days of the week have names, `jan` to `dec` and `sun` to `sat`. If both days are
    restricted, one match is enough. The time zone is UTC.
    """
    schedule = _get_schedule(owner)
    if schedule is None:
        return
    fault = _read_schedule(schedule.text)
    if isinstance(fault, CronError):
        yield Flaw(schedule.at, str(fault), fault.suggestion)


@register_warning("cron-never", "docs/platform/fields.md#schedules", Kind.WORKLOAD, Kind.VOLUMESET)
def schedule_without_a_day(owner: Workload | VolumeSet) -> Iterator[Flaw]:
    """A schedule names days that exist.

    30 February and 31 April never occur, so nothing would ever run.
    """
    schedule = _get_schedule(owner)
    if schedule is None:
        return
    cron = _read_schedule(schedule.text)
    if isinstance(cron, Cron) and not cron.comes:
        message = f"the schedule {quote_text(schedule.text)} never occurs: no month in it has such a day"
        yield Flaw(schedule.at, message, "name another day or month; every month has the days 1 to 28")


@register_rule("snapshot-schedule", "docs/platform/volumeset.md#snapshots", Kind.VOLUMESET)
def snapshots_too_often(volumeset: VolumeSet) -> Iterator[Flaw]:
    """Snapshots are taken at most once an hour.

    So the schedule's first field names a single minute.
    """
    schedule = _get_schedule(volumeset)
    if schedule is None:
        return
    cron = _read_schedule(schedule.text)
    if isinstance(cron, Cron) and cron.runs_an_hour > 1:
        minute, *rest = schedule.text.split()
        message = f"snapshots would be taken {cron.runs_an_hour} times an hour, once is the most"
        hint = (
            f"name one minute: {quote_text(' '.join(['0', *rest]))} instead of {quote_text(' '.join([minute, *rest]))}"
        )
        yield Flaw(schedule.at, message, hint)


def _get_schedule(owner: Workload | VolumeSet) -> _Schedule | None:
    """The schedule of a resource that has one."""
    if isinstance(owner, Workload):
        return None if owner.spec.job is None else _Schedule((*JOB, "schedule"), owner.spec.job.schedule)
    text = owner.spec.snapshots.schedule
    return None if text is None else _Schedule(SNAPSHOTS, text)


def _read_schedule(text: str) -> Cron | CronError:
    """The schedule, or its error."""
    return _remembered(text) if len(text) <= REMEMBERED else _parse_schedule(text)


def _parse_schedule(text: str) -> Cron | CronError:
    try:
        return Cron.parse(text)
    except CronError as fault:
        return fault.with_traceback(None)


_remembered = lru_cache(maxsize=1024)(_parse_schedule)
"""Caches schedules, since most resources share a few."""
