"""What happened to a workload between two observations, as events in the words that every engine uses; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from reconciler.engines.due_times import format_minute
from reconciler.engines.kubernetes.status.containers import BACKOFF_SECONDS, ContainerPhase, ContainerState
from reconciler.engines.kubernetes.status.events import index_events
from reconciler.engines.kubernetes.status.executions import (
    find_blocking,
    is_failed,
    list_last_failures,
    list_skipped,
    read_cause,
)
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    read_field,
    read_items,
    read_mapping,
    read_number,
    read_text,
)
from reconciler.engines.kubernetes.status.hooks import HookWatch, find_failures, follow_pods, report_failures
from reconciler.engines.kubernetes.status.pods import PodState
from reconciler.engines.kubernetes.status.rollout import LiveWorkload, read_pods
from reconciler.engines.workload.deployment import Deployment, Execution
from reconciler.engines.workload.spec import Type
from reconciler.engines.workload.status import (
    IN_A_ROW,
    DeploymentCondition,
    ExecutionState,
    RunningStatus,
    describe_skip,
)
from reconciler.model.kinds.workload import Job, metric_of
from reconciler.reasons import ConditionType, Reason
from reconciler.times import parse_time

EVERY = 10
"""Of the ends of a container in a row, and of skipped times, the first is an event, and each this many later."""
_CONDITIONS = (ConditionType.EXECUTIONS_FAILING, ConditionType.EXECUTIONS_UNFINISHED, ConditionType.SCALING_UNKNOWN)

_DELETED = ("metadata", "deletionTimestamp")

News = Iterator[tuple[Reason, str]]
Place = tuple[str, str]
"""The names of a pod and of its container."""


class EndCount(msgspec.Struct, frozen=True):
    """How often a container has ended: ever, and in a row; the last time ``at``, in seconds since the epoch."""

    total: int = 0
    row: int = 0
    at: float = 0.0


class WorkloadMoment(msgspec.Struct, frozen=True):
    """What was seen of a workload when it was last observed.

    ``waiting`` are containers that cannot start, ``evicted`` names of pods, ``replicas`` how many an autoscaler wants.
    ``skipped`` are the scheduled minutes since the epoch that the execution which runs has skipped. ``hooks`` are those
    that run, or that failed.
    """

    ends: Mapping[Place, EndCount] = {}
    waiting: frozenset[Place] = frozenset()
    evicted: frozenset[str] = frozenset()
    executions: tuple[Execution, ...] = ()
    conditions: tuple[DeploymentCondition, ...] = ()
    replicas: int = 0
    skipped: tuple[int, ...] = ()
    hooks: HookWatch = HookWatch()


class EndingPods(NamedTuple):
    """The pods of a workload that is deleted, as `LiveWorkload` has them."""

    pods: Sequence[ObjectPart]
    events: Sequence[ObjectPart]
    names: Mapping[str, str]


class _RecordedStatus(msgspec.Struct, frozen=True):
    status: RunningStatus


def read_recorded_moment(state: bytes, live: LiveWorkload, now: float) -> WorkloadMoment | None:
    """The moment that was recorded before this process began: what happened since is news. None if there is none.

    Of a pod, only the sum of restarts is recorded.
    """
    try:
        status = msgspec.json.decode(state, type=_RecordedStatus).status
    except msgspec.DecodeError:
        return None
    restarts = {replica.name: replica.restarts for replica in status.replicas}
    pods = [pod for pod in _list_troubled(live, now) if pod.name in restarts]
    ends = {}
    for pod in pods:
        missed = max(0, pod.restarts - restarts[pod.name])
        for container in pod.containers:
            count = max(0, _count_ends(container) - missed)
            ends[pod.name, container.name] = EndCount(count, count)
    waiting = frozenset(place for pod in pods for place in _list_waiting(pod))
    evicted = frozenset(pod.name for pod in pods if pod.ending == Reason.EVICTED)
    executions = status.job_executions
    # Which of them were reported is not known, and none twice is better than each.
    skipped = _list_skipped(executions, live, now)
    hooks = _watch_hooks(HookWatch(), live, now)
    return WorkloadMoment(ends, waiting, evicted, executions, status.conditions, skipped=skipped, hooks=hooks)


def find_news(
    before: WorkloadMoment | None, live: LiveWorkload, deployment: Deployment, now: float
) -> tuple[WorkloadMoment, list[tuple[Reason, str]]]:
    """What is seen of a workload now, and the events since ``before``; ``deployment`` is its status at ``now``.

    Without ``before`` nothing is news: what this program has not made may have its history.
    """
    pods = _list_troubled(live, now)
    ends = dict(_count_all_ends(before or WorkloadMoment(), pods))
    assert isinstance(deployment.status, RunningStatus)
    after = WorkloadMoment(
        ends,
        frozenset(place for pod in pods for place in _list_waiting(pod)),
        frozenset(pod.name for pod in pods if pod.over and pod.ending == Reason.EVICTED),
        deployment.status.job_executions,
        deployment.status.conditions,
        read_number(live.autoscaler or {}, "status", "desiredReplicas"),
        _list_skipped(deployment.status.job_executions, live, now),
        _watch_hooks((before or WorkloadMoment()).hooks, live, now),
    )
    if before is None:
        return after, []
    news = [
        *_report_ends(before, after, pods, live.spec.type is Type.CRON),
        *_report_waits(before, after, pods),
        *_report_executions(before, after),
        *_report_skipped(before, after, live),
        *_report_conditions(before.conditions, after.conditions),
        *_report_scaling(before, after, live),
        *report_failures(before.hooks, after.hooks, live.event_index, live.names),
    ]
    return after, news


def find_last_news(before: WorkloadMoment, ending: EndingPods, now: float) -> tuple[WorkloadMoment, News]:
    """The same of a workload that is deleted: what its pods do at their end."""
    events = index_events(ending.events)
    hooks = find_failures(follow_pods(before.hooks, ending.pods, now), ending.pods, events)
    return msgspec.structs.replace(before, hooks=hooks), report_failures(before.hooks, hooks, events, ending.names)


def _watch_hooks(before: HookWatch, live: LiveWorkload, now: float) -> HookWatch:
    return find_failures(follow_pods(before, live.pods, now), live.pods, live.event_index)


def _list_troubled(live: LiveWorkload, now: float) -> list[PodState]:
    """The pods whose containers wait or have ended, now or before, and that nobody deletes: most cost nothing here."""
    parts = tuple(part for part in live.pods if _has_ended(part) and not read_text(part, *_DELETED))
    if not parts:
        return []
    troubled = msgspec.structs.replace(live, pods=parts)
    return [*read_pods(troubled, now).states]


def _has_ended(part: ObjectPart) -> bool:
    return any(
        read_mapping(status, "lastState", "terminated") or read_field(status, "state", "running") is None
        for status in read_items(part, "status", "containerStatuses")
    )


def _count_ends(container: ContainerState) -> int:
    """The ends of a container in its pod: it was started again after each but the last."""
    is_over = container.phase is not ContainerPhase.RUNNING and container.last is not None
    return container.restarts + is_over


def _count_all_ends(before: WorkloadMoment, pods: Iterable[PodState]) -> Iterator[tuple[Place, EndCount]]:
    for pod in pods:
        for container in pod.containers:
            past = before.ends.get((pod.name, container.name), EndCount())
            total, at = _count_ends(container), container.last.at if container.last is not None else 0.0
            # After a long run, the kubelet and the host count anew.
            row = 0 if at - past.at >= BACKOFF_SECONDS else past.row
            yield (pod.name, container.name), EndCount(total, row + max(0, total - past.total), at)


def _list_waiting(pod: PodState) -> Iterator[Place]:
    for container in pod.containers:
        if container.phase is ContainerPhase.WAITING and container.reason and container.last is None:
            yield pod.name, container.name


def _report_ends(before: WorkloadMoment, after: WorkloadMoment, pods: Sequence[PodState], once: bool) -> News:
    """The ends of containers that nobody asked for; ``once``: they are executions, whose good end is none."""
    for pod in pods:
        if pod.over and pod.name in after.evicted - before.evicted:
            yield Reason.EVICTED, f"{pod.name} is replaced: {pod.message}"
        for container in pod.containers:
            place = pod.name, container.name
            count, last = after.ends[place], container.last
            number = count.total - before.ends.get(place, EndCount()).total
            if last is None or (once and not last.code) or not _is_news(count.row, number):
                continue
            if last.reason == Reason.START_FAILED:
                yield Reason.START_FAILED, f"{pod.name}: {container.name} could not be started: {last.message}"
            else:
                yield Reason.CONTAINER_ENDED, f"{pod.name}: {container.name} {last.words}"


def _is_news(row: int, number: int) -> bool:
    """Whether one of the last ``number`` of ``row`` ends in a row is the first one, or the tenth after one."""
    return any(index % EVERY == 0 for index in range(row - number, row))


def _report_waits(before: WorkloadMoment, after: WorkloadMoment, pods: Iterable[PodState]) -> News:
    for pod in pods:
        for container in pod.containers:
            if (pod.name, container.name) not in after.waiting - before.waiting:
                continue
            if container.reason == Reason.IMAGE_PULL_FAILED:
                yield Reason.IMAGE_PULL_FAILED, container.message.removeprefix(f"{container.reason}: ")
            elif container.lacks_image:
                yield Reason.WORKLOAD_ERROR, container.message
            else:
                yield Reason.START_FAILED, f"{pod.name}: {container.name} could not be started: {container.message}"


def _report_executions(before: WorkloadMoment, after: WorkloadMoment) -> News:
    states = {execution.name: execution.status for execution in before.executions}
    failing = any(condition.type == ConditionType.EXECUTIONS_FAILING for condition in before.conditions)
    for execution in after.executions:
        if states.get(execution.name) == execution.status:
            continue
        if is_failed(execution):
            yield Reason.EXECUTION_FAILED, f"{execution.name}: {read_cause(execution)}"
        elif execution.status == ExecutionState.SUCCESS and failing:
            failing, count = False, max(IN_A_ROW, len(list_last_failures(before.executions)))
            message = f"{execution.name} succeeded after {count} executions that failed in a row"
            yield Reason.EXECUTIONS_RECOVERED, message


def _list_skipped(executions: Sequence[Execution], live: LiveWorkload, now: float) -> tuple[int, ...]:
    job = live.spec.job
    blocking = find_blocking(executions, live.jobs, job) if job is not None and not live.spec.suspended else None
    return tuple(list_skipped(blocking, job, now)) if job is not None and blocking is not None else ()


def _report_skipped(before: WorkloadMoment, after: WorkloadMoment, live: LiveWorkload) -> News:
    """Of the times that an execution skips, the first one and each tenth after it."""
    last = max(before.skipped, default=0)
    minutes = [minute for minute in after.skipped[::EVERY] if minute > last]
    blocking = find_blocking(after.executions, live.jobs, live.spec.job or Job()) if minutes else None
    if blocking is not None:
        message = describe_skip(format_minute(minutes[-1]), blocking.name, parse_time(blocking.start_time))
        yield Reason.EXECUTION_SKIPPED, message


def _report_conditions(before: Sequence[DeploymentCondition], after: Sequence[DeploymentCondition]) -> News:
    types = {condition.type for condition in before}
    for condition in after:
        if condition.type in _CONDITIONS and condition.type not in types:
            yield condition.reason, condition.message


def _report_scaling(before: WorkloadMoment, after: WorkloadMoment, live: LiveWorkload) -> News:
    metric = metric_of(live.spec.type, live.spec.options)
    unknown = [
        any(condition.type == ConditionType.SCALING_UNKNOWN for condition in moment.conditions)
        for moment in (before, after)
    ]
    if unknown == [True, False]:
        yield Reason.SCALING_KNOWN, f"the metric {metric} has values again"
    if before.replicas and after.replicas and before.replicas != after.replicas:
        current = next(iter(read_items(live.autoscaler or {}, "status", "currentMetrics")), {})
        value = read_number(current, "resource", "current", "averageUtilization")
        cause = f": {metric} is {value}, its target {live.spec.options.autoscaling.target:g}" if value else ""
        yield Reason.SCALED, f"from {before.replicas} to {after.replicas} replicas{cause}"
