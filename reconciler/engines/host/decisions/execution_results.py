"""The results of executions, and what they say about a cron workload; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from reconciler.engines.host.decisions.availability import exit_words
from reconciler.engines.host.decisions.execution_log import (
    Events,
    ExecutionEntry,
    ExecutionLog,
    end_entry,
    trim_entries,
)
from reconciler.engines.host.decisions.replica import Phase, Replica
from reconciler.engines.workload.spec import ImageFault
from reconciler.engines.workload.status import (
    IMAGE_SECONDS,
    IN_A_ROW,
    DeploymentCondition,
    ExecutionState,
    describe_failures,
    describe_replaced,
    describe_skipped,
    list_unfinished,
)
from reconciler.reasons import Reason

MOST_STARTS = 4
"""Starts that may fail before an execution with the restart policy OnFailure is Invalid."""


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
    by_name, events = {replica.name: replica for replica in replicas}, Events()
    logged = {entry.name for entry in log.entries}
    lost = [replica for replica in replicas if replica.name not in logged and replica.ending is None]
    # The file of the log is lost, and the replica runs.
    entries = [*log.entries, *(ExecutionEntry(replica.name, replica.version, wall, boot=boot) for replica in lost)]
    for index, entry in enumerate(entries):
        if entry.state is not ExecutionState.ACTIVE:
            continue
        new = _compute_result(entry, by_name.get(entry.name), wall, boot)
        if new is entry and fault is not None and entry.name not in by_name and _can_never_start(entry, fault, wall):
            new = end_entry(entry, ExecutionState.INVALID, fault.reason, fault.message, wall)
        entries[index] = new
        log, news = _count_result(log, new)
        events += news
    return replace(log, entries=trim_entries(tuple(entries), limit)), events


def is_finished(replica: Replica) -> bool:
    """Whether all containers of an execution have ended for good."""
    return all(
        container.phase is Phase.ENDED and not needs_restart(replica, container.name)
        for container in replica.containers
    )


def needs_restart(replica: Replica, container: str) -> bool:
    """Whether an ended container starts again: after a failure, with the restart policy OnFailure.

    A program that cannot be started is tried a few times.
    """
    status = next(candidate for candidate in replica.containers if candidate.name == container)
    failed = status.last is not None and status.last.code != 0
    if status.last is not None and status.last.reason == Reason.START_FAILED and status.failures >= MOST_STARTS:
        return False
    return failed and replica.run is not None and replica.run.restart


def count_replaced(log: ExecutionLog, number: int) -> tuple[ExecutionLog, Events]:
    """``log`` after ``number`` executions were replaced before their end."""
    log = replace(log, replaced=log.replaced + number)
    # Only the count that reaches the limit is an event: later ones would repeat it.
    return log, _make_events(_check_unfinished_executions(log)) if log.replaced - number < IN_A_ROW else []


def count_skipped(log: ExecutionLog) -> tuple[ExecutionLog, Events]:
    """``log`` after a time was skipped because an execution still runs."""
    log = replace(log, skipped=log.skipped + 1)
    return log, _make_events(_check_unfinished_executions(log)) if log.skipped == IN_A_ROW else []


def with_running(entries: tuple[ExecutionEntry, ...], replicas: Sequence[Replica]) -> tuple[ExecutionEntry, ...]:
    """``entries`` with the containers of active executions that run; they are recorded with what is due, not alone."""
    running = {
        replica.name: tuple(container.name for container in replica.containers if container.phase is not Phase.ENDED)
        for replica in replicas
    }
    return tuple(
        replace(entry, running=running.get(entry.name, ())) if entry.state is ExecutionState.ACTIVE else entry
        for entry in entries
    )


def execution_conditions(log: ExecutionLog) -> tuple[DeploymentCondition, ...]:
    """What is wrong with the executions of a workload."""
    last = next((entry for entry in reversed(log.entries) if _is_failure(entry)), None)
    return (*_check_failures(log, last), *_check_unfinished_executions(log))


def _compute_result(entry: ExecutionEntry, replica: Replica | None, wall: float, boot: str) -> ExecutionEntry:
    if replica is None:
        # In the same boot the replica is not created yet. None survives a restart of the machine.
        if entry.boot == boot:
            return entry
        message = "this machine restarted while it ran"
        return end_entry(entry, ExecutionState.FAILURE, Reason.ERROR, message, wall)
    if replica.ending is not None:
        state = ExecutionState.FAILURE if replica.reason == Reason.EVICTED else ExecutionState.REMOVED
        message = "it ran longer than activeDeadlineSeconds" if replica.reason == Reason.DEADLINE_EXCEEDED else ""
        return end_entry(entry, state, replica.reason, message, wall)
    if not is_finished(replica):
        return entry
    faults = [
        (container.name, container.last)
        for container in replica.containers
        if container.last is not None and container.last.code
    ]
    if not faults:
        return end_entry(entry, ExecutionState.SUCCESS, Reason.COMPLETED, "", wall)
    name, last = faults[0]
    state = ExecutionState.INVALID if last.reason == Reason.START_FAILED else ExecutionState.FAILURE
    return end_entry(entry, state, last.reason, f"{name} {exit_words(last)}", wall)


def _can_never_start(entry: ExecutionEntry, fault: ImageFault, wall: float) -> bool:
    """Whether an execution cannot start: its image does not exist, or cannot be pulled for too long."""
    return fault.final or wall - entry.started >= IMAGE_SECONDS


def _count_result(log: ExecutionLog, entry: ExecutionEntry) -> tuple[ExecutionLog, Events]:
    """``log`` with the counts after ``entry`` has ended, and the events about it."""
    if entry.state is ExecutionState.SUCCESS:
        message = f"{entry.name} succeeded after {log.failures} executions that failed in a row"
        recovered = [(Reason.EXECUTIONS_RECOVERED, message)] if log.failures >= IN_A_ROW else []
        return replace(log, failures=0, replaced=0), recovered
    if not _is_failure(entry):
        return log, []
    log = replace(log, failures=log.failures + 1, replaced=0)
    events = [(Reason.EXECUTION_FAILED, f"{entry.name}: {entry.message or entry.reason}")]
    return log, [*events, *(_make_events(_check_failures(log, entry)) if log.failures == IN_A_ROW else [])]


def _is_failure(entry: ExecutionEntry) -> bool:
    # The platform calls an execution past its deadline Removed, but it did not do its work.
    failed = entry.state in (ExecutionState.FAILURE, ExecutionState.INVALID)
    return failed or entry.reason == Reason.DEADLINE_EXCEEDED


def _check_failures(log: ExecutionLog, last: ExecutionEntry | None) -> Iterable[DeploymentCondition]:
    return describe_failures(log.failures, last.name, last.message or last.reason) if last is not None else ()


def _check_unfinished_executions(log: ExecutionLog) -> Iterable[DeploymentCondition]:
    message = ""
    if log.skipped >= IN_A_ROW and log.active:
        first = log.active[0]
        message = describe_skipped(first.name, first.running, first.started, log.skipped)
    elif log.replaced >= IN_A_ROW:
        message = describe_replaced(log.replaced)
        last = next((entry for entry in reversed(log.entries) if entry.reason == Reason.REPLACED), None)
        if last is not None and last.running:
            message += f"; {', '.join(last.running)} of {last.name} still ran"
    return list_unfinished(message)


def _make_events(conditions: Iterable[DeploymentCondition]) -> Events:
    return [(condition.reason, condition.message) for condition in conditions]
