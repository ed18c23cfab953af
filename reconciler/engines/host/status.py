"""The status of a workload at a location, in the shapes of docs/platform/workload.md#status; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from reconciler.engines.host.decisions.availability import fault_of, is_current, is_failing, is_starting, notice_of
from reconciler.engines.host.decisions.progress import Progress, compute_progress
from reconciler.engines.host.decisions.replica import HookState, Replica, ReplicaContainer
from reconciler.engines.workload.deployment import (
    Deployment,
    DeploymentTarget,
    Execution,
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
    list_limitations,
    make_condition,
)
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.times import format_iso_time


class StatusContext(msgspec.Struct, frozen=True):
    """The inputs of a status besides the workload; ``epoch`` is the wall clock minus the monotonic clock, in seconds.

    ``last_error`` is the current failure, ``limitations`` what is not enforced here, ``clock_jumped`` how the clock was
    set, ``created`` the creation time of each version, ``address`` where the data plane serves the workload,
    ``scaling_unknown`` why nothing scales it, ``domain_endpoints`` its addresses by domains. ``images`` are None where
    nothing runs from images. ``executions`` are those of a cron workload, with ``execution_conditions``.
    ``rerouting``: a replica that ends may still get requests.
    """

    place: DeploymentTarget
    now: float
    epoch: float
    last_error: str = ""
    limitations: tuple[str, ...] = ()
    clock_jumped: str = ""
    recommended: dict[str, tuple[int, int]] = {}
    created: dict[int, str] = {}
    images: ResolvedImages | None = None
    address: str = ""
    scaling_unknown: str = ""
    domain_endpoints: tuple[str, ...] = ()
    executions: tuple[Execution, ...] = ()
    execution_conditions: tuple[DeploymentCondition, ...] = ()
    rerouting: bool = False


def workload_status(
    spec: WorkloadSpec, replicas: Sequence[Replica], context: StatusContext
) -> tuple[Health, Deployment]:
    """Health and deployment of a wanted workload. Executions are no replicas to wait for."""
    if spec.type is Type.CRON:
        return _build_deployment(spec, (), replicas, context)
    return _build_deployment(spec, replicas, replicas, context)


def _build_deployment(
    spec: WorkloadSpec, replicas: Sequence[Replica], listed: Sequence[Replica], context: StatusContext
) -> tuple[Health, Deployment]:
    current = compute_progress(spec, replicas, context.now)
    message = context.last_error or current.message
    versions = _build_versions(spec, replicas, context)
    ready = not context.last_error and not current.rolling and all(version.ready for version in versions)
    target, key = context.place, spec.key
    served = spec.type is not Type.CRON and any(container.ports for container in spec.containers)
    names = build_host_names(key, target, served, spec.replicas if spec.stateful else 0)
    health = health_of(spec, replicas, current, context.last_error, context.now, rerouting=context.rerouting)
    status = RunningStatus(
        endpoint=names.endpoint,
        address=context.address,
        ready=ready,
        deploying=current.rolling,
        last_processed_version=spec.version,
        expected_deployment_version=spec.version,
        message=message,
        versions=versions,
        replicas=tuple(_build_replica_status(member) for member in sorted(listed, key=lambda member: member.name)),
        conditions=tuple(_list_conditions(context)),
        job_executions=context.executions,
    )
    live = sum(replica.ending is None for replica in listed)
    images = context.images if context.images is not None else msgspec.UNSET
    domains = context.domain_endpoints if served else ()
    endpoint = names.canonical
    own = WorkloadStatus(endpoint, endpoint, names.internal, names.replicas, str(health), live, domains, images)
    return health, Deployment(target.location, status, own)


def health_of(
    spec: WorkloadSpec,
    replicas: Sequence[Replica],
    current: Progress,
    error: str,
    now: float,
    *,
    rerouting: bool = False,
) -> Health:
    """Healthy once all is as wanted; Unhealthy if something fails; Loading before that, a slow start included.

    Replicas that end do not count, once they get no new requests: until then it is ``rerouting``. A suspended workload
    is Healthy when the last of them has ended.
    """
    busy = rerouting or (spec.suspended and bool(replicas))
    if not error and not busy and not current.rolling and current.available >= current.wanted:
        return Health.HEALTHY
    failing = any(
        is_current(spec, replica) and is_failing(replica) and not is_starting(replica, now) for replica in replicas
    )
    return Health.UNHEALTHY if error or failing else Health.LOADING


def workload_health(
    spec: WorkloadSpec, replicas: Sequence[Replica], error: str, now: float, *, rerouting: bool = False
) -> Health:
    """The health of a wanted workload, as ``workload_status`` has it."""
    counted = () if spec.type is Type.CRON else replicas
    return health_of(spec, counted, compute_progress(spec, counted, now), error, now, rerouting=rerouting)


def _build_versions(spec: WorkloadSpec, replicas: Sequence[Replica], context: StatusContext) -> tuple[Version, ...]:
    groups: dict[tuple[int, int], list[Replica]] = {(spec.version, spec.gvc_version): []}
    for replica in replicas:
        if replica.ending is None:
            groups.setdefault((replica.version, replica.gvc_version), []).append(replica)
    return tuple(
        _build_version(spec, numbers, group, context)
        for numbers, group in sorted(groups.items(), key=lambda item: item[0])
    )


def _build_version(
    spec: WorkloadSpec, numbers: tuple[int, int], group: list[Replica], context: StatusContext
) -> Version:
    newest = numbers == (spec.version, spec.gvc_version)
    containers = (
        spec.containers if newest or not group else tuple(container.wanted for container in group[0].containers)
    )
    count = max(spec.replicas, len(group)) if newest else len(group)
    shown = {container.name: _build_container_status(container, group, count, context) for container in containers}
    message = next((entry["message"] for entry in shown.values() if entry["message"]), "")
    ready = all(entry["ready"] for entry in shown.values())
    timestamps = (replica.creation_timestamp or format_iso_time(replica.created + context.epoch) for replica in group)
    created = context.created.get(numbers[0]) or min(timestamps, default="")
    return Version(f"{spec.key.name}-{numbers[0]:05d}", created, numbers[0], numbers[1], ready, message, shown)


def _build_container_status(
    spec: ContainerSpec, group: list[Replica], count: int, context: StatusContext
) -> dict[str, Any]:
    members = [container for replica in group for container in replica.containers if container.name == spec.name]
    ready = sum(replica.ready for replica in group)
    message = next((text for member in members if (text := notice_of(member))), "")
    restarts = _summarize_restarts(members, context.epoch)
    advised = context.recommended.get(spec.name)
    return build_container_status(spec, ReplicaCount(count, ready), message, restarts, advised)


def _summarize_restarts(members: list[ReplicaContainer], epoch: float) -> dict[str, Any]:
    count = sum(member.restarts for member in members)
    ended = [member for member in members if member.last is not None]
    if not ended:
        return {"count": count}
    container = max(ended, key=lambda candidate: candidate.last.at if candidate.last else 0.0)
    assert container.last is not None
    summary = {"count": count, "reason": container.last.reason, "exitCode": container.last.code}
    return summary | ({"lastRestartTime": format_iso_time(container.started + epoch)} if container.restarts else {})


def _build_replica_status(replica: Replica) -> ReplicaStatus:
    waits = next(
        (
            text
            for container in replica.containers
            if (text := fault_of(container) or _hook_notice(container) or container.hook_error)
        ),
        "",
    )
    message = f"ending: {replica.reason}" if replica.ending is not None else waits
    ports = {str(declared): port for declared, port in sorted(replica.ports.items())}
    restarts = sum(container.restarts for container in replica.containers)
    return ReplicaStatus(replica.name, replica.version, replica.ready, ports, message, restarts)


def _hook_notice(container: ReplicaContainer) -> str:
    return f"the postStart hook of {container.name} runs" if container.post_start is HookState.RUNNING else ""


def _list_conditions(context: StatusContext) -> Iterable[DeploymentCondition]:
    yield from list_limitations(context.limitations)
    if context.clock_jumped:
        yield make_condition(ConditionType.CLOCK_JUMPED, Reason.CLOCK_JUMPED, context.clock_jumped)
    if context.scaling_unknown:
        yield make_condition(ConditionType.SCALING_UNKNOWN, Reason.SCALING_UNKNOWN, context.scaling_unknown)
    yield from context.execution_conditions
