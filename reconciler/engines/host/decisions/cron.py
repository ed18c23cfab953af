"""When a cron workload runs: due times, the concurrency policy, missed times and the history; pure.

The log of a workload is written before an execution starts, and names it. It knows the times that it has handled, so
neither a crash nor a clock that is set back starts an execution twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from reconciler.engines.due_times import begins_anew, due_times, format_minute, missed_message
from reconciler.engines.due_times import next_due as next_minute
from reconciler.engines.host.decisions.availability import EVERY
from reconciler.engines.host.decisions.execution_log import (
    Events,
    ExecutionEntry,
    ExecutionLog,
    end_entry,
    trim_entries,
)
from reconciler.engines.host.decisions.execution_results import count_replaced, count_skipped, with_running
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.status import ExecutionState, describe_skip
from reconciler.model.kinds.workload import Job
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

LATE = 10.0
"""Seconds by which an execution may start late without an event."""


def next_due(log: ExecutionLog) -> float | None:
    """The next scheduled time in seconds since the epoch; None if nothing is scheduled."""
    minute = next_minute(log.schedule, log.checked)
    return None if minute is None else minute * 60.0


def add_due(
    log: ExecutionLog, spec: WorkloadSpec, wall: float, boot: str, replicas: Sequence[Replica] = ()
) -> tuple[ExecutionLog, Events]:
    """``log`` with the execution that is due at ``wall`` (seconds since the epoch), and the events.

    ``replicas`` are those of the executions. A new or changed schedule begins now. After a downtime only the newest
    time runs, and the others are one event.
    """
    job, minute = spec.job or Job(), int(wall // 60)
    schedule = "" if spec.suspended else job.schedule
    if begins_anew(schedule, log.schedule, log.checked, minute):
        return replace(log.at(minute, schedule), skipped=0), []
    log = log.caught_up(minute)
    times = due_times(schedule, log.checked, minute)
    if times is None:
        return log, []
    newest = times.newest
    # Missed minutes end the span: if the clock goes back to them, they are not handled yet.
    log = replace(log, checked=newest) if times.first == newest else log.at(newest, schedule)
    if log.has_handled(newest):
        return log, []
    skip = bool(log.active) and job.concurrency_policy == "Forbid"
    missed = missed_message(times, "is skipped" if skip else "runs")
    events: Events = [(Reason.EXECUTIONS_MISSED, missed)] if missed else []
    log = replace(log, entries=with_running(log.entries, replicas))
    if skip:
        log, news = _skip_minute(log, newest)
        return log, [*events, *news]
    entries = tuple(_end_replaced_entry(entry, wall) for entry in log.entries)
    number = len(log.active)
    log, news = count_replaced(replace(log, entries=entries), number)
    name = f"{spec.key.name}-{newest}"
    if all(entry.name != name for entry in entries):
        # The event about missed times names the newest one too.
        due = wall if events else newest * 60.0
        entries = (*entries, ExecutionEntry(name, spec.version, wall, boot=boot, due=due))
    return replace(log, skipped=0, entries=trim_entries(entries, job.history_limit)), [*events, *news]


def add_run(log: ExecutionLog, entry: ExecutionEntry, limit: int) -> ExecutionLog:
    """``log`` with an execution on demand, whatever else runs."""
    return replace(log, entries=trim_entries((*log.entries, entry), limit))


def record_start(log: ExecutionLog, name: str, version: int, wall: float) -> tuple[ExecutionLog, Events]:
    """``log`` with the version that the execution ``name`` begins with, and the event if it starts late."""
    entry = next(entry for entry in log.entries if entry.name == name)
    late = wall - (entry.due or entry.started)
    message = f"{name} starts {late:.0f} s late: it was due at {format_iso_time(entry.due or entry.started)}"
    entries = tuple(
        replace(execution_entry, version=version) if execution_entry is entry else execution_entry
        for execution_entry in log.entries
    )
    return replace(log, entries=entries), [(Reason.EXECUTION_LATE, message)] if late > LATE else []


def _skip_minute(log: ExecutionLog, minute: int) -> tuple[ExecutionLog, Events]:
    """``log`` after ``minute`` was skipped, and the events: for the first in a row, and for every tenth after it."""
    log, events = count_skipped(log)
    if log.skipped % EVERY == 1:
        active = log.active[0]
        message = describe_skip(format_minute(minute), active.name, active.started)
        events.append((Reason.EXECUTION_SKIPPED, message))
    return log, events


def _end_replaced_entry(entry: ExecutionEntry, wall: float) -> ExecutionEntry:
    if entry.state is not ExecutionState.ACTIVE:
        return entry
    return end_entry(entry, ExecutionState.REMOVED, Reason.REPLACED, "the next execution was due", wall)
