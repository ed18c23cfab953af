"""Health and deployment of a workload on a cluster, in the shapes of docs/platform/workload.md#status; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from reconciler.engines.kubernetes.status.containers import ContainerState
from reconciler.engines.kubernetes.status.executions import (
    JobInput,
    execution_conditions,
    group_pods,
    list_due_times,
    read_executions,
    trim_executions,
)
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    find_condition,
    is_false,
    name_of,
    parse_quantity,
    read_field,
    read_message,
    read_seconds,
    read_text,
)
from reconciler.engines.kubernetes.status.pods import PodState, list_parts
from reconciler.engines.kubernetes.status.readiness import Readiness, ReadinessState, compute_readiness
from reconciler.engines.kubernetes.status.rollout import (
    MISSING,
    LivePods,
    LiveWorkload,
    Rollout,
    describe_progress,
    health_of,
    read_rollout,
)
from reconciler.engines.workload.deployment import (
    Deployment,
    DeploymentTarget,
    Execution,
    ResolvedImage,
    ResolvedImages,
    Version,
    WorkloadStatus,
    build_host_names,
)
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.engines.workload.status import (
    DeploymentCondition,
    ReplicaCount,
    ReplicaStatus,
    RunningStatus,
    build_container_status,
    ending_message,
    list_limitations,
    make_condition,
)
from reconciler.model.kinds.workload import Job
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.times import format_iso_time

UNKNOWN_SECONDS = 30.0
"""Seconds without a value of its metric after which the scaling of a workload counts as unknown."""


class StatusContext(msgspec.Struct, frozen=True):
    """The inputs of a status besides the workload; ``now`` is in seconds since the epoch.

    ``last_error`` is the current failure of a step, ``unknown`` why the cluster does not answer for this workload.
    ``limitations`` are what is not enforced there, ``recommended`` millicores and bytes by container, ``created`` the
    creation time of each version, ``address`` where the cluster serves the workload, ``domain_endpoints`` its addresses
    by domains. ``past`` are the executions as last recorded, ``restarts`` the restarts by version and container.
    """

    target: DeploymentTarget
    now: float
    last_error: str = ""
    unknown: str = ""
    limitations: tuple[str, ...] = ()
    recommended: Mapping[str, tuple[int, int]] = {}
    created: Mapping[int, str] = {}
    address: str = ""
    domain_endpoints: tuple[str, ...] = ()
    past: tuple[Execution, ...] = ()
    restarts: Mapping[tuple[int, str], Mapping[str, Any]] = {}


class _View(msgspec.Struct, frozen=True):
    """What health and deployment are made of; ``replicas`` are the pods that are shown."""

    health: Health
    message: str
    rollout: Rollout
    replicas: tuple[PodState, ...]
    executions: tuple[Execution, ...] = ()
    conditions: tuple[DeploymentCondition, ...] = ()


def workload_status(live: LiveWorkload, pods: LivePods, context: StatusContext) -> tuple[Health, Deployment]:
    """Health and deployment of a workload. Executions are no replicas to wait for."""
    view = _read_cron(live, pods, context) if live.spec.type is Type.CRON else _read_replicas(live, pods, context)
    if context.unknown:
        view = msgspec.structs.replace(view, health=Health.UNKNOWN, message=context.unknown)
    return view.health, _build_deployment(live, context, view)


def next_status_time(live: LiveWorkload, pods: LivePods, context: StatusContext) -> float | None:
    """When the status changes although the cluster does not, in seconds since the epoch; None if it may not.

    A replica that does not become ready is a failure from some time on, and one that is ready becomes available.
    """
    now = context.now
    if live.spec.type is Type.CRON:
        source = _read_jobs(live, pods, context)
        moments = list(list_due_times(read_executions(source), source.job, now))
    else:
        moments = [at for pod in pods.states if not pod.ending for at in pod.late_at]
        moments += [pod.ready_since + live.spec.rollout.min_ready for pod in pods.states if pod.ready_since]
        moments.append(_unknown_since(live.autoscaler) + UNKNOWN_SECONDS)
    return min((moment for moment in moments if moment > now), default=None)


def _read_jobs(live: LiveWorkload, pods: LivePods, context: StatusContext) -> JobInput:
    groups = group_pods(pods.states, live.pods)
    return JobInput(live.jobs, groups, pods.events, context.past, context.now, live.spec.job or Job())


def _read_replicas(live: LiveWorkload, pods: LivePods, context: StatusContext) -> _View:
    rollout = read_rollout(live, pods, context.now)
    health = health_of(rollout, live.spec, context.last_error)
    message = context.last_error or describe_progress(rollout, live.spec.pending)
    if health is Health.DELETING:
        message = ending_message(context.last_error)
    conditions = tuple(_check_autoscaler(live.autoscaler, context.now))
    return _View(health, message, rollout, rollout.pods, (), conditions)


def _read_cron(live: LiveWorkload, pods: LivePods, context: StatusContext) -> _View:
    source = _read_jobs(live, pods, context)
    ended = sorted((pod for group in source.pods.values() for pod in group), key=lambda pod: pod.name)
    executions = read_executions(source)
    readiness = compute_readiness(live.object) if live.primary else MISSING
    rollout = Rollout(0, readiness, (), (), (), 0, 0)
    health, message = _judge_schedule(readiness, context.last_error)
    conditions = tuple(execution_conditions(executions, source, live.spec.suspended))
    shown = trim_executions(executions, source.job.history_limit)
    return _View(health, message, rollout, tuple(pod for pod in ended if not pod.over), shown, conditions)


def _judge_schedule(readiness: Readiness, error: str) -> tuple[Health, str]:
    """A cron workload is healthy once its schedule is on the cluster, with or without executions."""
    if readiness.state is ReadinessState.TERMINATING:
        return Health.DELETING, ending_message(error)
    if error:
        return Health.UNHEALTHY, error
    return (Health.HEALTHY, "") if readiness.current else (Health.LOADING, readiness.message)


def _build_deployment(live: LiveWorkload, context: StatusContext, view: _View) -> Deployment:
    spec, target, rollout = live.spec, context.target, view.rollout
    served = spec.type is not Type.CRON and any(container.ports for container in spec.containers)
    names = build_host_names(spec.key, target, served, rollout.wanted if spec.stateful else 0)
    versions = _build_versions(live, context, rollout)
    ready = not (context.last_error or context.unknown) and not rollout.rolling and rollout.readiness.current
    status = RunningStatus(
        endpoint=names.endpoint,
        address=context.address if served else "",
        ready=ready and all(version.ready for version in versions),
        deploying=rollout.rolling,
        last_processed_version=spec.version,
        expected_deployment_version=spec.version,
        message=view.message,
        versions=versions,
        replicas=tuple(map(_build_replica_status, view.replicas)),
        conditions=(*list_limitations(context.limitations), *view.conditions),
        job_executions=view.executions,
    )
    own = WorkloadStatus(
        names.canonical,
        names.canonical,
        names.internal,
        names.replicas,
        str(view.health),
        sum(not pod.ending for pod in view.replicas),
        context.domain_endpoints if served else (),
        _resolve_images(rollout.current if spec.type is not Type.CRON else view.replicas),
    )
    return Deployment(target.location, status, own)


def _build_replica_status(pod: PodState) -> ReplicaStatus:
    node = pod.node or msgspec.UNSET
    return ReplicaStatus(pod.name, pod.version, pod.ready, {}, pod.message, pod.restarts, node)


def _build_versions(live: LiveWorkload, context: StatusContext, rollout: Rollout) -> tuple[Version, ...]:
    spec = live.spec
    newest = (spec.version, spec.gvc_version)
    groups: dict[tuple[int, int], list[PodState]] = {newest: []}
    for pod in (*rollout.current, *rollout.old):
        groups.setdefault((pod.version, pod.gvc_version or spec.gvc_version), []).append(pod)
    parts = {name_of(part): part for part in live.pods}
    return tuple(
        _build_version(
            numbers,
            group,
            spec.containers if numbers == newest else _read_containers(parts[group[0].name], live),
            max(rollout.wanted, len(group)) if numbers == newest else len(group),
            (spec, context),
        )
        for numbers, group in sorted(groups.items(), key=lambda item: item[0])
    )


def _build_version(
    numbers: tuple[int, int],
    group: Sequence[PodState],
    containers: Sequence[ContainerSpec],
    total: int,
    workload: tuple[WorkloadSpec, StatusContext],
) -> Version:
    spec, context = workload
    count = ReplicaCount(total, sum(pod.ready for pod in group))
    shown = {
        container.name: _build_container(
            container,
            group,
            count,
            context.recommended.get(container.name),
            context.restarts.get((numbers[0], container.name), {}),
        )
        for container in containers
    }
    message = next((entry["message"] for entry in shown.values() if entry["message"]), "")
    message = message or next((pod.message for pod in group if pod.message), "")
    created = context.created.get(numbers[0]) or min((format_iso_time(pod.created) for pod in group), default="")
    ready = all(entry["ready"] for entry in shown.values())
    return Version(f"{spec.key.name}-{numbers[0]:05d}", created, numbers[0], numbers[1], ready, message, shown)


def _build_container(
    spec: ContainerSpec,
    group: Sequence[PodState],
    count: ReplicaCount,
    advised: tuple[int, int] | None,
    past: Mapping[str, Any],
) -> dict[str, Any]:
    members = [container for pod in group for container in pod.containers if container.name == spec.name]
    message = next((container.message for container in members if container.message), "")
    return build_container_status(spec, count, message, _summarize_restarts(members, past), advised)


def _summarize_restarts(members: Sequence[ContainerState], past: Mapping[str, Any]) -> dict[str, Any]:
    """The restarts of a container; the reason of the same end as last recorded, if only an event had it."""
    summary: dict[str, Any] = {"count": sum(member.restarts for member in members)}
    ended = [member for member in members if member.last is not None]
    if not ended:
        return summary
    container = max(ended, key=lambda member: member.last.at if member.last is not None else 0.0)
    assert container.last is not None
    summary |= {"reason": container.last.reason, "exitCode": container.last.code}
    same = all(past.get(field) == summary[field] for field in ("count", "exitCode"))
    if same and container.last.reason in (Reason.ERROR, Reason.COMPLETED):
        summary["reason"] = past.get("reason", container.last.reason)
    started = container.restarts and container.started
    return summary | ({"lastRestartTime": format_iso_time(container.started)} if started else {})


def _read_containers(part: ObjectPart, live: LiveWorkload) -> tuple[ContainerSpec, ...]:
    """The containers of an older version, as its pod has them."""
    names = live.names or {container.name: container.name for container in live.spec.containers}
    return tuple(
        ContainerSpec(
            names.get(read_text(container, "name"), read_text(container, "name")),
            read_text(container, "image"),
            round(parse_quantity(read_field(container, "resources", "limits", "cpu")) * 1000),
            round(parse_quantity(read_field(container, "resources", "limits", "memory"))),
        )
        for container in list_parts(part, names)
    )


def _resolve_images(pods: Sequence[PodState]) -> ResolvedImages:
    """What the images of the newest version mean, as the nodes report it."""
    containers = [container for pod in pods for container in pod.containers]
    resolved = {container.image: container.digest for container in containers if container.digest}
    at = max((container.started for container in containers if container.digest), default=0.0)
    faults = dict.fromkeys(container.message for container in containers if container.lacks_image)
    return ResolvedImages(
        tuple(ResolvedImage(image, digest) for image, digest in sorted(resolved.items())),
        format_iso_time(at) if at else "",
        tuple(faults),
    )


def _check_autoscaler(autoscaler: ObjectPart | None, now: float) -> Iterator[DeploymentCondition]:
    """The condition for an autoscaler whose metric has had no value for a while."""
    active, since = find_condition(autoscaler or {}, "ScalingActive"), _unknown_since(autoscaler)
    if since and now - since >= UNKNOWN_SECONDS:
        message = read_message(active, "message") or read_text(active, "reason")
        yield make_condition(ConditionType.SCALING_UNKNOWN, Reason.SCALING_UNKNOWN, message)


def _unknown_since(autoscaler: ObjectPart | None) -> float:
    """Since when the metric of an autoscaler has no value; 0 if it has one, or needs none."""
    active = find_condition(autoscaler or {}, "ScalingActive")
    missing = is_false(active) and active.get("reason") != "ScalingDisabled"
    return read_seconds(active, "lastTransitionTime") if missing else 0.0
