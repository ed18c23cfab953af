"""The next executions of a cron workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reconciler.model.cron import Cron, CronError
from reconciler.model.kinds.workload import read_specification
from reconciler.status.conditions import ResourceFacts

MOST_TIMES = 10
"""The next times that are listed."""
_MINUTE = 60


class Schedule(NamedTuple):
    """The schedule of a cron workload, its next times (seconds since the epoch), and why there are none ("")."""

    expression: str
    times: Sequence[float]
    obstacle: str = ""


def read_schedule(facts: ResourceFacts, now: float) -> Schedule | None:
    """The schedule of the workload with ``facts``, from ``now`` on; None if it is none of the type cron.

    Schedules are in UTC. What an operator suspended goes on: only the workload itself ends its schedule.
    """
    body = max(facts.records, key=lambda record: record.applied_at, default=None)
    spec = read_specification(body.body) if body is not None else None
    if spec is None or spec.type != "cron" or spec.job is None:
        return None
    if spec.job.suspend or spec.default_options.suspend:
        return Schedule(spec.job.schedule, (), "its manifest suspends it")
    try:
        cron = Cron.parse(spec.job.schedule)
    except CronError as error:
        return Schedule(spec.job.schedule, (), str(error))
    times: list[float] = []
    minute: int | None = int(now // _MINUTE)
    while minute is not None and len(times) < MOST_TIMES:
        minute = cron.next_after(minute)
        times += [] if minute is None else [float(minute * _MINUTE)]
    return Schedule(spec.job.schedule, times, "" if times else "no day matches it")
