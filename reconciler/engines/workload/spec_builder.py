"""Derives the specification to run from an applied workload: options of the location, probes, sizes and rollout."""

from __future__ import annotations

import math

import msgspec

from reconciler.engines.workload.spec import ContainerSpec, RolloutBounds, Type, WorkloadSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import (
    Command,
    Container,
    Hook,
    Probe,
    Specification,
    Target,
    declared_ports,
    options_at,
)
from reconciler.model.platform import SCRATCH_URI, STORE_URIS, VOLUMESET_URI
from reconciler.model.quantity import memory_bytes, parse_millicores

_WRITABLE = (SCRATCH_URI, VOLUMESET_URI)


class AppliedWorkload(msgspec.Struct, frozen=True):
    """A workload in a step or record at a location, with its body decoded; ``version`` is that of the workload."""

    key: Key
    location: str
    spec: Specification
    version: int
    digest: str
    gvc_version: int = 1


def workload_spec(applied: AppliedWorkload, config_hash: str) -> WorkloadSpec:
    """The specification of a workload at its location, with its least number of replicas."""
    spec = applied.spec
    options = options_at(spec, applied.location)
    at_least = WorkloadSpec(
        key=applied.key,
        type=Type(spec.type),
        version=applied.version,
        digest=applied.digest,
        config_hash=config_hash,
        replicas=0,
        containers=tuple(_build_container(spec, container) for container in spec.containers),
        options=options,
        gvc_version=applied.gvc_version,
        suspended=options.suspend or (spec.job is not None and spec.job.suspend),
        user=spec.security_options.run_as_user,
        group=spec.security_options.filesystem_group_id,
        stores=tuple(at for container in spec.containers for at in container.volumes if at.uri.startswith(STORE_URIS)),
        dynamic_tags=spec.support_dynamic_tags,
        job=spec.job,
        writes_volumes=any(at.uri.startswith(_WRITABLE) for container in spec.containers for at in container.volumes),
        firewall=spec.firewall_config,
        tcp_ports=tuple(
            port.number for container in spec.containers for port in container.ports if port.protocol == "tcp"
        ),
    )
    return at_scale(at_least, spec, options.autoscaling.min_scale)


def at_scale(workload_spec: WorkloadSpec, spec: Specification, replicas: int) -> WorkloadSpec:
    """``workload_spec``, made from ``spec``, with ``replicas`` and the rollout that follows from their number.

    A suspended workload has no replicas, and a cron workload has executions instead.
    """
    count = 0 if workload_spec.suspended or workload_spec.type is Type.CRON else replicas
    return msgspec.structs.replace(workload_spec, replicas=count, rollout=rollout_of(spec, count))


def rollout_of(spec: Specification, replicas: int) -> RolloutBounds:
    """How a new version replaces the old one for ``replicas`` (docs/platform/workload.md#rollout-options).

    A percentage is rounded up for the surge and down for the unavailable. If both would be zero, one replica may be
    unavailable, because otherwise nothing could be replaced. A stateful workload has no surge: its replicas are
    replaced one at a time.
    """
    asked = spec.rollout_options
    parallel = asked.scaling_policy == "Parallel"
    if spec.type == Type.STATEFUL:
        return RolloutBounds(asked.min_ready_seconds, 0, 1, parallel)
    surge = _compute_replica_count(asked.max_surge_replicas, replicas, up=True)
    unavailable = _compute_replica_count(asked.max_unavailable_replicas, replicas, up=False)
    return RolloutBounds(asked.min_ready_seconds, surge, unavailable or int(not surge), parallel)


def _compute_replica_count(asked: int | str, replicas: int, *, up: bool) -> int:
    """``3``, ``"3"`` or ``"25%"`` of ``replicas`` as a number; a percentage refers to at least one replica."""
    if isinstance(asked, int) or not asked.endswith("%"):
        return int(asked)
    share = int(asked[:-1]) * max(replicas, 1)
    return math.ceil(share / 100) if up else share // 100


def _build_container(spec: Specification, container: Container) -> ContainerSpec:
    ports = declared_ports(container)
    readiness = container.readiness_probe
    if readiness is None and spec.type == Type.SERVERLESS and ports:
        readiness = Probe(tcp_socket=Target())
    return ContainerSpec(
        name=container.name,
        image=container.image,
        cpu=parse_millicores(container.cpu),
        memory=memory_bytes(container.memory),
        min_cpu=parse_millicores(container.min_cpu) if container.min_cpu else 0,
        min_memory=memory_bytes(container.min_memory) if container.min_memory else 0,
        termination_seconds=spec.rollout_options.termination_grace_period_seconds,
        ports=ports,
        readiness=_with_port(readiness, ports),
        liveness=_with_port(container.liveness_probe, ports),
        post_start=_get_hook_command(container.lifecycle.post_start),
        pre_stop=_get_hook_command(container.lifecycle.pre_stop),
        mounts=tuple(volume.path for volume in container.volumes),
        metrics=container.metrics,
    )


def _with_port(probe: Probe | None, ports: tuple[int, ...]) -> Probe | None:
    """``probe`` with the container's first port if it names no port."""
    if probe is None or not ports:
        return probe
    forms = {name: getattr(probe, name) for name in ("http_get", "tcp_socket", "grpc")}
    aimed: dict[str, Target] = {
        name: msgspec.structs.replace(target, port=ports[0])
        for name, target in forms.items()
        if target is not None and not target.port
    }
    return msgspec.structs.replace(probe, **aimed)


def _get_hook_command(hook: Hook | None) -> Command | None:
    return hook.exec if hook is not None else None
