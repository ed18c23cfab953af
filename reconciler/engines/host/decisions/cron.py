"""When a cron workload runs: due times, the concurrency policy, missed times and the history; pure.

The log of a workload is written before an execution starts, and names it. A time that the log has passed is never due
again, so neither a crash nor a clock that is set back starts an execution twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from reconciler.engines.host.decisions.availability import EVERY, exit_words
from reconciler.engines.host.replica import Phase, Replica
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.run_command import ContainerOverride
from reconciler.model.cron import DAY, Cron
from reconciler.model.kinds.workload import Job
from reconciler.reasons import Reason
from reconciler.times import iso

MOST_COUNTED = 1000
"""Missed times beyond this number are not counted one by one."""

LATE = 10.0
"""Seconds by which an execution may start late without an event."""

Events = list[tuple[Reason, str]]


class ExecutionState(StrEnum):
    """The status of an execution (docs/platform/workload.md#executions)."""

    INVALID = "Invalid"
    ACTIVE = "Active"
    SUCCESS = "Success"
    FAILURE = "Failure"
    REMOVED = "Removed"


class ExecutionEntry(msgspec.Struct, frozen=True):
    """One execution. ``started`` and ``completed`` are in seconds since the epoch, ``completed`` is 0 while it runs.

    ``boot`` is the boot id of the machine when it began. ``on_demand`` executions ignore the concurrency policy;
    ``command_id`` is the command that requested one. ``due`` is when it should start, in seconds since the epoch.
    """

    name: str
    version: int
    started: float
    state: ExecutionState = ExecutionState.ACTIVE
    completed: float = 0.0
    reason: str = ""
    message: str = ""
    boot: str = ""
    on_demand: bool = False
    overrides: tuple[ContainerOverride, ...] = ()
    command_id: str = ""
    due: float = 0.0


class ExecutionLog(msgspec.Struct, frozen=True):
    """The executions of one workload, oldest first.

    ``checked`` is the last minute since the epoch that was handled under ``schedule``, which is "" while suspended.
    ``skipped`` counts the times in a row that were skipped because an execution still ran.
    """

    schedule: str = ""
    checked: int = 0
    skipped: int = 0
    entries: tuple[ExecutionEntry, ...] = ()

    @property
    def active(self) -> tuple[ExecutionEntry, ...]:
        """The executions that have not ended."""
        return tuple(each for each in self.entries if each.state is ExecutionState.ACTIVE)


@lru_cache(maxsize=4096)
def parse_schedule(text: str) -> Cron:
    """The schedule ``text``. Raises CronError."""
    return Cron.parse(text)


def next_due(log: ExecutionLog) -> float | None:
    """The next scheduled time in seconds since the epoch; None if nothing is scheduled."""
    minute = parse_schedule(log.schedule).next_after(log.checked) if log.schedule else None
    return None if minute is None else minute * 60.0


def add_due(log: ExecutionLog, wanted: WorkloadSpec, wall: float, boot: str) -> tuple[ExecutionLog, Events]:
    """``log`` with the execution that is due at ``wall`` (seconds since the epoch), and the events.

    A new or changed schedule begins now. After a downtime only the newest time runs, and the others are one event.
    """
    job, minute = wanted.job or Job(), int(wall // 60)
    schedule = "" if wanted.suspended else job.schedule
    # A clock that was far ahead must not stop the schedule until that time comes again.
    if schedule != log.schedule or log.checked - minute > DAY:
        return replace(log, schedule=schedule, checked=minute, skipped=0), []
    first = parse_schedule(schedule).next_after(log.checked) if schedule else None
    if first is None or first > minute:
        return log, []
    newest = _newest(parse_schedule(schedule), first, minute)
    events = _missed(parse_schedule(schedule), first, newest)
    log = replace(log, checked=newest)
    if log.active and job.concurrency_policy == "Forbid":
        log = replace(log, skipped=log.skipped + 1)
        if log.skipped % EVERY == 1:
            message = f"{_at(newest)} is skipped: {log.active[0].name} still runs since {iso(log.active[0].started)}"
            events.append((Reason.EXECUTION_SKIPPED, message))
        return log, events
    entries = tuple(_replaced(each, wall) for each in log.entries)
    name = f"{wanted.key.name}-{newest}"
    if all(each.name != name for each in entries):
        # The event about missed times names the newest one too.
        due = wall if events else newest * 60.0
        entries = (*entries, ExecutionEntry(name, wanted.version, wall, boot=boot, due=due))
    return replace(log, skipped=0, entries=_trimmed(entries, job.history_limit)), events


def add_run(log: ExecutionLog, entry: ExecutionEntry, limit: int) -> ExecutionLog:
    """``log`` with an execution on demand, whatever else runs."""
    return replace(log, entries=_trimmed((*log.entries, entry), limit))


def record_start(log: ExecutionLog, name: str, version: int, wall: float) -> tuple[ExecutionLog, Events]:
    """``log`` with the version that the execution ``name`` begins with, and the event if it starts late."""
    entry = next(each for each in log.entries if each.name == name)
    late = wall - (entry.due or entry.started)
    message = f"{name} starts {late:.0f} s late: it was due at {iso(entry.due or entry.started)}"
    entries = tuple(replace(each, version=version) if each is entry else each for each in log.entries)
    return replace(log, entries=entries), [(Reason.EXECUTION_LATE, message)] if late > LATE else []


def record_results(
    log: ExecutionLog, limit: int, replicas: Sequence[Replica], wall: float, boot: str
) -> tuple[ExecutionLog, Events]:
    """``log`` with the results of executions that have ended, and an event for each failure.

    ``limit`` is the number of ended executions to keep.
    """
    by_name, events = {each.name: each for each in replicas}, Events()
    known = {each.name for each in log.entries}
    lost = [each for each in replicas if each.name not in known and each.ending is None]
    # The file of the log is lost, and the replica runs.
    entries = [*log.entries, *(ExecutionEntry(each.name, each.version, wall, boot=boot) for each in lost)]
    for place, entry in enumerate(entries):
        if entry.state is not ExecutionState.ACTIVE:
            continue
        entries[place] = new = _result(entry, by_name.get(entry.name), wall, boot)
        if new.state in (ExecutionState.FAILURE, ExecutionState.INVALID) or new.reason == Reason.DEADLINE_EXCEEDED:
            events.append((Reason.EXECUTION_FAILED, f"{new.name}: {new.message or new.reason}"))
    return replace(log, entries=_trimmed(tuple(entries), limit)), events


def is_finished(replica: Replica) -> bool:
    """Whether all containers of an execution have ended for good."""
    return all(each.phase is Phase.ENDED and not restarts(replica, each.name) for each in replica.containers)


def restarts(replica: Replica, container: str) -> bool:
    """Whether an ended container starts again: after a failure, with the restart policy OnFailure."""
    found = next(each for each in replica.containers if each.name == container)
    failed = found.last is not None and found.last.code != 0
    return failed and replica.run is not None and replica.run.restart


def _result(entry: ExecutionEntry, replica: Replica | None, wall: float, boot: str) -> ExecutionEntry:
    if replica is None:
        if entry.boot == boot:
            return entry
        message = "this machine restarted while it ran"
        return _ended(entry, ExecutionState.FAILURE, Reason.ERROR, message, wall)
    if replica.ending is not None:
        state = ExecutionState.FAILURE if replica.reason == Reason.EVICTED else ExecutionState.REMOVED
        message = "it ran longer than activeDeadlineSeconds" if replica.reason == Reason.DEADLINE_EXCEEDED else ""
        return _ended(entry, state, replica.reason, message, wall)
    if not is_finished(replica):
        return entry
    faults = [(each.name, each.last) for each in replica.containers if each.last is not None and each.last.code]
    if not faults:
        return _ended(entry, ExecutionState.SUCCESS, Reason.COMPLETED, "", wall)
    name, last = faults[0]
    state = ExecutionState.INVALID if last.reason == Reason.START_FAILED else ExecutionState.FAILURE
    return _ended(entry, state, last.reason, f"{name} {exit_words(last)}", wall)


def _ended(entry: ExecutionEntry, state: ExecutionState, reason: str, message: str, wall: float) -> ExecutionEntry:
    return replace(entry, state=state, reason=str(reason), message=message, completed=max(wall, entry.started))


def _replaced(entry: ExecutionEntry, wall: float) -> ExecutionEntry:
    if entry.state is not ExecutionState.ACTIVE:
        return entry
    return _ended(entry, ExecutionState.REMOVED, Reason.REPLACED, "the next execution was due", wall)


def _newest(cron: Cron, first: int, now: int) -> int:
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


def _missed(cron: Cron, first: int, newest: int) -> Events:
    count, due = 0, first
    while due < newest and count < MOST_COUNTED:
        count, due = count + 1, cron.next_after(due) or newest
    if not count:
        return []
    number = f"more than {count}" if due < newest else str(count)
    return [
        (Reason.EXECUTIONS_MISSED, f"{number} scheduled executions since {_at(first)} were missed; {_at(newest)} runs")
    ]


def _trimmed(entries: tuple[ExecutionEntry, ...], limit: int) -> tuple[ExecutionEntry, ...]:
    """``entries`` without the oldest ended ones beyond ``limit``."""
    ended = [each for each in entries if each.state is not ExecutionState.ACTIVE]
    dropped = ended[: max(0, len(ended) - limit)]
    return tuple(each for each in entries if each not in dropped)


def _at(minute: int) -> str:
    return iso(minute * 60.0)
