"""Jobs of a cron workload as its executions, and what they mean for the workload; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from reconciler.engines.due_times import next_due
from reconciler.engines.kubernetes.status.events import EventIndex, find_event, list_events
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    find_condition,
    is_true,
    name_of,
    read_items,
    read_mapping,
    read_message,
    read_seconds,
    read_text,
    read_version,
)
from reconciler.engines.kubernetes.status.pods import PodState
from reconciler.engines.kubernetes.status.rollout import strip_creation_prefix
from reconciler.engines.workload.deployment import Execution
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
from reconciler.model.cron import CronError
from reconciler.model.kinds.workload import Job
from reconciler.reasons import Reason
from reconciler.times import format_iso_time, parse_time

INSTANTIATE = "cronjob.kubernetes.io/instantiate"
"""The annotation of Jobs that are made of a CronJob at another time than its own."""
MANUAL = "manual"
MOST_SKIPPED = 1000
"""Skipped times beyond this number are not counted one by one."""
END_SECONDS = 2.0
"""Seconds after a scheduled time in which the end of an execution just before it may still become known."""


class JobInput(msgspec.Struct, frozen=True):
    """What is known of the executions of a workload.

    ``past`` are those that were last recorded: the cluster forgets a Job that is deleted. ``now`` is in seconds since
    the epoch. ``pods`` are those of all Jobs, by the name of the Job.
    """

    jobs: tuple[ObjectPart, ...]
    pods: dict[str, list[PodState]]
    events: EventIndex
    past: tuple[Execution, ...]
    now: float
    job: Job


class _Result(msgspec.Struct, frozen=True):
    state: ExecutionState
    reason: str = ""
    message: str = ""
    ended: str = ""


def read_executions(source: JobInput) -> list[Execution]:
    """All executions of a workload that the cluster or the records have, oldest first."""
    past = {execution.name: execution for execution in source.past}
    there = {name_of(job): _read_execution(job, source) for job in source.jobs}
    for name, execution in there.items():
        former = past.get(name)
        # Once its pods are gone, nothing but the records has their words.
        is_same = former is not None and not execution.replica and former.status == execution.status
        if former is not None and (is_same or former.status == ExecutionState.INVALID):
            there[name] = former
    gone = [execution for execution in source.past if execution.name not in there]
    lost = [_end_lost(execution, source) for execution in gone]
    return sorted([*lost, *there.values()], key=lambda execution: (execution.start_time, execution.name))


def trim_executions(executions: Sequence[Execution], limit: int) -> tuple[Execution, ...]:
    """``executions`` without the oldest ended ones beyond ``limit``."""
    ended = [execution for execution in executions if execution.status != ExecutionState.ACTIVE]
    dropped = {execution.name for execution in ended[: max(0, len(ended) - limit)]}
    return tuple(execution for execution in executions if execution.name not in dropped)


def execution_conditions(
    executions: Sequence[Execution], source: JobInput, suspended: bool
) -> Iterator[DeploymentCondition]:
    """What is wrong with the executions of a workload."""
    failures = list_last_failures(executions)
    if failures:
        last = failures[0]
        yield from describe_failures(len(failures), last.name, read_cause(last))
    yield from list_unfinished(_describe_unfinished(executions, source, suspended))


def list_due_times(executions: Sequence[Execution], job: Job, now: float) -> Iterator[float]:
    """The times after ``now`` at which the status may change by itself: an image is missing, or a time is skipped."""
    active = [execution for execution in executions if execution.status == ExecutionState.ACTIVE]
    for execution in active:
        yield parse_time(execution.start_time) + IMAGE_SECONDS
    due = _find_next_due(job.schedule, now - END_SECONDS) if active else None
    if due is not None:
        yield due * 60.0 + END_SECONDS


def _find_next_due(schedule: str, now: float) -> int | None:
    """The next scheduled minute; None for none, also if the cluster has a schedule that is none here."""
    try:
        return next_due(schedule, int(now // 60))
    except CronError:
        return None


def group_pods(pods: Sequence[PodState], parts: Sequence[ObjectPart]) -> dict[str, list[PodState]]:
    """The states of pods by the name of the Job that made each; ``parts`` are the same pods as objects."""
    groups: dict[str, list[PodState]] = {}
    by_name = {pod.name: pod for pod in pods}
    for part in parts:
        owners = read_items(part, "metadata", "ownerReferences")
        owner = next((read_text(owner, "name") for owner in owners if owner.get("kind") == "Job"), "")
        label = read_text(part, "metadata", "labels", "batch.kubernetes.io/job-name")
        groups.setdefault(owner or label, []).append(by_name[name_of(part)])
    return groups


def _read_execution(job: ObjectPart, source: JobInput) -> Execution:
    pods = sorted(source.pods.get(name_of(job), ()), key=lambda pod: (pod.created, pod.name))
    result = _compute_result(job, pods, source)
    started = read_seconds(job, "status", "startTime") or read_seconds(job, "metadata", "creationTimestamp")
    version = read_version(read_mapping(job, "spec", "template")) or read_version(job)
    return Execution(
        name_of(job),
        version,
        str(result.state),
        format_iso_time(started),
        result.ended,
        tuple(_list_conditions(job, result)),
        pods[-1].name if pods else "",
    )


def _compute_result(job: ObjectPart, pods: Sequence[PodState], source: JobInput) -> _Result:
    complete, failed = find_condition(job, "Complete"), find_condition(job, "Failed")
    if is_true(complete):
        ended = _format_time(job, "status", "completionTime") or _format_time(complete, "lastTransitionTime")
        return _Result(ExecutionState.SUCCESS, Reason.COMPLETED, "", ended)
    if is_true(failed):
        return _explain_failure(failed, pods)
    if ended := _format_time(job, "metadata", "deletionTimestamp"):
        return _Result(ExecutionState.REMOVED, *_explain_removal(source), ended)
    return _explain_active(job, pods, source)


def _explain_failure(failed: ObjectPart, pods: Sequence[PodState]) -> _Result:
    ended, reason = _format_time(failed, "lastTransitionTime"), read_text(failed, "reason")
    if reason == Reason.DEADLINE_EXCEEDED:
        return _Result(ExecutionState.REMOVED, reason, "it ran longer than activeDeadlineSeconds", ended)
    if pods and pods[-1].ending == Reason.EVICTED:
        return _Result(ExecutionState.FAILURE, Reason.EVICTED, pods[-1].message, ended)
    for container in pods[-1].containers if pods else ():
        if container.last is not None and container.last.code:
            invalid = container.last.reason == Reason.START_FAILED
            state = ExecutionState.INVALID if invalid else ExecutionState.FAILURE
            return _Result(state, container.last.reason, f"{container.name} {container.last.words}", ended)
    return _Result(ExecutionState.FAILURE, Reason.ERROR, read_message(failed, "message") or reason, ended)


def _explain_removal(source: JobInput) -> tuple[str, str]:
    if source.job.concurrency_policy == "Replace":
        return Reason.REPLACED, "the next execution was due"
    return Reason.DELETED, ""


def _explain_active(job: ObjectPart, pods: Sequence[PodState], source: JobInput) -> _Result:
    """A Job that has not ended: the platform calls one that cannot be started Invalid, while the cluster goes on."""
    started = read_seconds(job, "status", "startTime") or read_seconds(job, "metadata", "creationTimestamp")
    late = source.now - started >= IMAGE_SECONDS
    for container in pods[-1].containers if pods else ():
        final = container.reason == Reason.INVALID_IMAGE_NAME
        if container.reason and container.message and not container.restarts and (final or late):
            at = format_iso_time(started if final else started + IMAGE_SECONDS)
            return _Result(ExecutionState.INVALID, container.reason, f"{container.name}: {container.message}", at)
    event = find_event(list_events(source.events, job, "Job"), "FailedCreate") if not pods else None
    if event is not None and late:
        words = strip_creation_prefix(event.message)
        return _Result(ExecutionState.INVALID, Reason.START_FAILED, words, format_iso_time(started + IMAGE_SECONDS))
    return _Result(ExecutionState.ACTIVE)


def _list_conditions(job: ObjectPart, result: _Result) -> Iterator[dict[str, str]]:
    if result.ended:
        kind = "Complete" if result.state is ExecutionState.SUCCESS else "Failed"
        yield _make_condition(kind, str(result.reason), result.message, result.ended)
    suspended = find_condition(job, "Suspended")
    if is_true(suspended):
        changed = _format_time(suspended, "lastTransitionTime")
        yield _make_condition("Suspended", read_text(suspended, "reason"), read_message(suspended, "message"), changed)


def _make_condition(kind: str, reason: str, message: str, changed: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "message": message, "reason": reason, "lastTransitionTime": changed}


def _end_lost(execution: Execution, source: JobInput) -> Execution:
    """An execution whose Job is gone: one that ran was removed, as the concurrency policy does."""
    if execution.completion_time or execution.status != ExecutionState.ACTIVE:
        return execution
    reason, message = _explain_removal(source)
    ended = format_iso_time(max(source.now, parse_time(execution.start_time)))
    return msgspec.structs.replace(
        execution,
        status=str(ExecutionState.REMOVED),
        completion_time=ended,
        conditions=(_make_condition("Failed", reason, message, ended),),
    )


def _reason_of(execution: Execution) -> str:
    return execution.conditions[0]["reason"] if execution.conditions else ""


def read_cause(execution: Execution) -> str:
    """Why an execution failed."""
    return (execution.conditions[0]["message"] if execution.conditions else "") or _reason_of(execution)


def is_failed(execution: Execution) -> bool:
    """Whether an execution ended without doing its work."""
    failed = execution.status in (ExecutionState.FAILURE, ExecutionState.INVALID)
    # The platform calls an execution past its deadline Removed, but it did not do its work.
    return failed or _reason_of(execution) == Reason.DEADLINE_EXCEEDED


def list_last_failures(executions: Sequence[Execution]) -> list[Execution]:
    """The executions that failed since the last success, the newest first; replaced and active ones do not count."""
    failures = []
    for execution in reversed(executions):
        if execution.status == ExecutionState.SUCCESS:
            break
        if is_failed(execution):
            failures.append(execution)
    return failures


def find_blocking(executions: Sequence[Execution], jobs: Iterable[ObjectPart], job: Job) -> Execution | None:
    """The execution that runs and so skips scheduled times; None for none. One on demand skips none."""
    if job.concurrency_policy == "Replace":
        return None
    manual = {name_of(part) for part in jobs if read_text(part, "metadata", "annotations", INSTANTIATE) == MANUAL}
    active = (execution for execution in executions if execution.status == ExecutionState.ACTIVE)
    return next((execution for execution in active if execution.name not in manual), None)


def list_skipped(execution: Execution, job: Job, now: float) -> list[int]:
    """The scheduled minutes since the epoch at which ``execution`` ran up to ``now``, MOST_SKIPPED at most."""
    minutes: list[int] = []
    minute = _find_next_due(job.schedule, parse_time(execution.start_time))
    while minute is not None and minute * 60.0 + END_SECONDS <= now and len(minutes) < MOST_SKIPPED:
        minutes.append(minute)
        minute = _find_next_due(job.schedule, minute * 60.0)
    return minutes


def _describe_unfinished(executions: Sequence[Execution], source: JobInput, suspended: bool) -> str:
    blocking = None if suspended else find_blocking(executions, source.jobs, source.job)
    if blocking is not None:
        skipped = len(list_skipped(blocking, source.job, source.now))
        running = [name for pod in source.pods.get(blocking.name, ()) for name in _list_running_containers(pod)]
        started = parse_time(blocking.start_time)
        return describe_skipped(blocking.name, running, started, skipped) if skipped >= IN_A_ROW else ""
    replaced = 0
    for execution in reversed(executions):
        if _reason_of(execution) == Reason.REPLACED:
            replaced += 1
        elif execution.status != ExecutionState.ACTIVE:
            break
    return describe_replaced(replaced) if replaced >= IN_A_ROW else ""


def _list_running_containers(pod: PodState) -> list[str]:
    return [container.name for container in pod.containers if container.started]


def _format_time(part: Any, *path: str) -> str:
    """The time at ``path`` in the form of the status; "" if there is none."""
    seconds = read_seconds(part, *path)
    return format_iso_time(seconds) if seconds else ""
