"""Containers of pods: image, program, ports, probes, hooks and what they may do."""

from __future__ import annotations

from typing import Any

from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import format_label
from reconciler.engines.kubernetes.rendering.quantities import build_resources, drop_empty
from reconciler.engines.workload.image_reference import parse_reference
from reconciler.engines.workload.spec import ContainerSpec, Restriction, Type, WorkloadSpec
from reconciler.model.kinds.workload import Command, Container, Probe, Target

DRAIN_SECONDS = 45
"""The seconds of the default preStop hook, and those between SIGTERM and SIGKILL after it."""
TOTAL_SECONDS = 90
SLEEP_SINCE = (1, 30)
"""The version of Kubernetes from which on the kubelet sleeps itself: images need no program for it."""
_ALWAYS_DROPPED = ("AUDIT_WRITE", "MKNOD", "NET_RAW")
"""Capabilities that no container has, as on a host."""


def build_container(
    container: Container, inputs: WorkloadInputs, env: list[dict[str, Any]], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """A container of a pod. Raises ImageError for an image that is not valid."""
    desired = inputs.template.desired
    spec = next(spec for spec in desired.containers if spec.name == container.name)
    ports = [{"containerPort": port, "name": f"p{port}", "protocol": "TCP"} for port in spec.assigned_ports]
    return drop_empty(
        {
            "name": format_label(container.name),
            "image": resolve_image(container.image, inputs.template.env_context.org, inputs.options.registry),
            "imagePullPolicy": "Always" if desired.dynamic_tags else None,
            "command": [container.command] if container.command else [],
            "args": list(container.args),
            "workingDir": container.working_dir,
            "ports": ports,
            "env": env,
            "resources": build_resources(desired, spec),
            "volumeMounts": mounts,
            "livenessProbe": build_probe(spec.liveness, liveness=True),
            "readinessProbe": build_probe(spec.readiness),
            "lifecycle": _build_lifecycle(spec, desired, inputs.features.version),
            "securityContext": _build_security_context(desired.restriction),
        }
    )


def resolve_image(text: str, org: str, registry: str) -> str:
    """The image ``text`` with its registry: nodes then have no part in what it means. Raises ImageError."""
    return str(parse_reference(text, org, registry))


def build_probe(probe: Probe | None, *, liveness: bool = False) -> dict[str, Any] | None:
    """A probe; None without one. A liveness probe succeeds with its first success: Kubernetes has no other number."""
    if probe is None:
        return None
    times = {
        "initialDelaySeconds": probe.initial_delay_seconds or None,
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "successThreshold": 1 if liveness else probe.success_threshold,
        "failureThreshold": probe.failure_threshold,
    }
    return drop_empty({**_build_test(probe), **times})


def grace_seconds(desired: WorkloadSpec) -> int:
    """The seconds from the beginning of a pod's end to SIGKILL.

    An execution gets SIGTERM without the wait of the default hook (docs/platform/workload.md#executions).
    """
    total = next((spec.termination_seconds for spec in desired.containers), None)
    if total is not None:
        return total
    hooked = any(spec.pre_stop is not None for spec in desired.containers)
    return DRAIN_SECONDS if desired.type is Type.CRON and not hooked else TOTAL_SECONDS


def _build_test(probe: Probe) -> dict[str, Any]:
    if probe.exec is not None:
        return {"exec": _build_command(probe.exec)}
    if probe.http_get is not None:
        return {"httpGet": _build_http_get(probe.http_get)}
    if probe.tcp_socket is not None:
        return {"tcpSocket": {"port": probe.tcp_socket.port}}
    return {"grpc": {"port": probe.grpc.port if probe.grpc is not None else 0}}


def _build_http_get(target: Target) -> dict[str, Any]:
    headers = [{"name": header.name, "value": header.value} for header in target.http_headers]
    fields = {"path": target.path, "port": target.port, "scheme": target.scheme, "httpHeaders": headers}
    return drop_empty(fields)


def _build_command(command: Command) -> dict[str, Any]:
    return {"command": list(command.command)}


def _build_lifecycle(spec: ContainerSpec, desired: WorkloadSpec, version: tuple[int, int]) -> dict[str, Any]:
    return drop_empty(
        {
            "postStart": {"exec": _build_command(spec.post_start)} if spec.post_start is not None else None,
            "preStop": _build_pre_stop(spec, desired, version),
        }
    )


def _build_pre_stop(spec: ContainerSpec, desired: WorkloadSpec, version: tuple[int, int]) -> dict[str, Any] | None:
    if spec.pre_stop is not None:
        return {"exec": _build_command(spec.pre_stop)}
    seconds = min(DRAIN_SECONDS, grace_seconds(desired) // 2)
    if desired.type is Type.CRON or not seconds:
        return None
    if version >= SLEEP_SINCE:
        return {"sleep": {"seconds": seconds}}
    return {"exec": {"command": ["sleep", str(seconds)]}}


def _build_security_context(restriction: Restriction) -> dict[str, Any]:
    dropped = ("ALL",) if "ALL" in restriction.dropped else tuple(sorted({*_ALWAYS_DROPPED, *restriction.dropped}))
    context: dict[str, Any] = {"capabilities": {"drop": list(dropped)}}
    return context | ({"readOnlyRootFilesystem": True} if restriction.read_only else {})
