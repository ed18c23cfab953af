"""The results of executions, and what they say about a cron workload; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.engines.host.decisions.availability import exit_words
from reconciler.engines.host.decisions.execution_log import (
    Events,
    ExecutionEntry,
    ExecutionLog,
    ExecutionState,
    ended,
    trimmed,
)
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.engines.workload.spec import ImageFault
from reconciler.reasons import ConditionType, Reason
from reconciler.times import iso


class ExecutionCondition(NamedTuple):
    """A condition of a cron workload besides its health; ``type`` is also the reason."""

    type: ConditionType
    reason: Reason
    message: str


IMAGE_SECONDS = 300.0
"""Seconds for which an execution waits for an image that cannot be pulled."""

MOST_STARTS = 4
"""Starts that may fail before an execution with the restart policy OnFailure is Invalid."""

IN_A_ROW = 3
"""Failed, replaced or skipped executions in a row that are a condition of the workload."""


def record_results(
    log: ExecutionLog,
    limit: int,
    replicas: Sequence[Replica],
    wall: float,
    boot: str,
    fault: ImageFault | None = None,
) -> tuple[ExecutionLog, Events]:
    """``log`` with the results of executions that have ended, and an event for each failure.

    ``limit`` is the number of ended executions to keep; ``fault`` is why what has no replica yet cannot start.
    """
    by_name, events = {each.name: each for each in replicas}, Events()
    known = {each.name for each in log.entries}
    lost = [each for each in replicas if each.name not in known and each.ending is None]
    # The file of the log is lost, and the replica runs.
    entries = [*log.entries, *(ExecutionEntry(each.name, each.version, wall, boot=boot) for each in lost)]
    for place, entry in enumerate(entries):
        if entry.state is not ExecutionState.ACTIVE:
            continue
        new = _result(entry, by_name.get(entry.name), wall, boot)
        if new is entry and fault is not None and entry.name not in by_name and _can_never_start(entry, fault, wall):
            new = ended(entry, ExecutionState.INVALID, fault.reason, fault.message, wall)
        entries[place] = new
        log, news = _count_result(log, new)
        events += news
    return replace(log, entries=trimmed(tuple(entries), limit)), events


def is_finished(replica: Replica) -> bool:
    """Whether all containers of an execution have ended for good."""
    return all(each.phase is Phase.ENDED and not restarts(replica, each.name) for each in replica.containers)


def restarts(replica: Replica, container: str) -> bool:
    """Whether an ended container starts again: after a failure, with the restart policy OnFailure.

    A program that cannot be started is tried a few times.
    """
    found = next(each for each in replica.containers if each.name == container)
    failed = found.last is not None and found.last.code != 0
    if found.last is not None and found.last.reason == Reason.START_FAILED and found.failures >= MOST_STARTS:
        return False
    return failed and replica.run is not None and replica.run.restart


def count_replaced(log: ExecutionLog, number: int) -> tuple[ExecutionLog, Events]:
    """``log`` after ``number`` executions were replaced before their end."""
    log = replace(log, replaced=log.replaced + number)
    return log, _events(_unfinished(log)) if log.replaced - number < IN_A_ROW else []


def count_skipped(log: ExecutionLog) -> tuple[ExecutionLog, Events]:
    """``log`` after a time was skipped because an execution still runs."""
    log = replace(log, skipped=log.skipped + 1)
    return log, _events(_unfinished(log)) if log.skipped == IN_A_ROW else []


def with_running(entries: tuple[ExecutionEntry, ...], replicas: Sequence[Replica]) -> tuple[ExecutionEntry, ...]:
    """``entries`` with the containers of active executions that run; they are recorded with what is due, not alone."""
    running = {
        each.name: tuple(container.name for container in each.containers if container.phase is not Phase.ENDED)
        for each in replicas
    }
    return tuple(
        replace(each, running=running.get(each.name, ())) if each.state is ExecutionState.ACTIVE else each
        for each in entries
    )


def execution_conditions(log: ExecutionLog) -> tuple[ExecutionCondition, ...]:
    """What is wrong with the executions of a workload."""
    last = next((each for each in reversed(log.entries) if _failed(each)), None)
    return (*_failing(log, last), *_unfinished(log))


def _result(entry: ExecutionEntry, replica: Replica | None, wall: float, boot: str) -> ExecutionEntry:
    if replica is None:
        if entry.boot == boot:
            return entry
        message = "this machine restarted while it ran"
        return ended(entry, ExecutionState.FAILURE, Reason.ERROR, message, wall)
    if replica.ending is not None:
        state = ExecutionState.FAILURE if replica.reason == Reason.EVICTED else ExecutionState.REMOVED
        message = "it ran longer than activeDeadlineSeconds" if replica.reason == Reason.DEADLINE_EXCEEDED else ""
        return ended(entry, state, replica.reason, message, wall)
    if not is_finished(replica):
        return entry
    faults = [(each.name, each.last) for each in replica.containers if each.last is not None and each.last.code]
    if not faults:
        return ended(entry, ExecutionState.SUCCESS, Reason.COMPLETED, "", wall)
    name, last = faults[0]
    state = ExecutionState.INVALID if last.reason == Reason.START_FAILED else ExecutionState.FAILURE
    return ended(entry, state, last.reason, f"{name} {exit_words(last)}", wall)


def _can_never_start(entry: ExecutionEntry, fault: ImageFault, wall: float) -> bool:
    """Whether an execution cannot start: its image does not exist, or cannot be pulled for too long."""
    return fault.final or wall - entry.started >= IMAGE_SECONDS


def _count_result(log: ExecutionLog, entry: ExecutionEntry) -> tuple[ExecutionLog, Events]:
    """``log`` with the counts after ``entry`` has ended, and the events about it."""
    if entry.state is ExecutionState.SUCCESS:
        message = f"{entry.name} succeeded after {log.failures} executions that failed in a row"
        recovered = [(Reason.EXECUTIONS_RECOVERED, message)] if log.failures >= IN_A_ROW else []
        return replace(log, failures=0, replaced=0), recovered
    if not _failed(entry):
        return log, []
    log = replace(log, failures=log.failures + 1, replaced=0)
    events = [(Reason.EXECUTION_FAILED, f"{entry.name}: {entry.message or entry.reason}")]
    return log, [*events, *(_events(_failing(log, entry)) if log.failures == IN_A_ROW else [])]


def _failed(entry: ExecutionEntry) -> bool:
    failed = entry.state in (ExecutionState.FAILURE, ExecutionState.INVALID)
    return failed or entry.reason == Reason.DEADLINE_EXCEEDED


def _failing(log: ExecutionLog, last: ExecutionEntry | None) -> Iterable[ExecutionCondition]:
    if log.failures >= IN_A_ROW and last is not None:
        message = f"the last {log.failures} executions failed; {last.name}: {last.message or last.reason}"
        yield ExecutionCondition(ConditionType.EXECUTIONS_FAILING, Reason.EXECUTIONS_FAILING, message)


def _unfinished(log: ExecutionLog) -> Iterable[ExecutionCondition]:
    message = ""
    if log.skipped >= IN_A_ROW and log.active:
        first = log.active[0]
        containers = f" ({', '.join(first.running)})" if first.running else ""
        since = f"{first.name}{containers} runs since {iso(first.started)}"
        message = f"{since}, and {log.skipped} scheduled times were skipped"
    elif log.replaced >= IN_A_ROW:
        message = f"the last {log.replaced} executions were replaced before they ended"
        last = next((each for each in reversed(log.entries) if each.reason == Reason.REPLACED), None)
        if last is not None and last.running:
            message += f"; {', '.join(last.running)} of {last.name} still ran"
    if message:
        yield ExecutionCondition(ConditionType.EXECUTIONS_UNFINISHED, Reason.EXECUTIONS_UNFINISHED, message)


def _events(conditions: Iterable[ExecutionCondition]) -> Events:
    return [(each.reason, each.message) for each in conditions]
