"""Serverless workloads where Knative is served: its Service scales them by requests, also to zero."""

from __future__ import annotations

from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import build_metadata, workload_name
from reconciler.engines.kubernetes.rendering.pods import Pods
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.routes import HostRoute, PathRule, plan_routes
from reconciler.engines.kubernetes.rendering.services import is_open, list_ports
from reconciler.engines.workload.environment import PORT
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.kinds.workload import RESOURCE_METRICS, metric_of
from reconciler.model.quantity import MIB

GROUP = "serving.knative.dev"
_SCALING = "autoscaling.knative.dev/"
_VISIBILITY = "networking.knative.dev/visibility"
_WINDOW = 60
"""Seconds over which requests are averaged; without requests, this time passes before the delay begins."""
_PANIC_WINDOW, _PANIC_THRESHOLD = "10.0", "300.0"
"""The window of 6 seconds as a percentage, and the rise from which on it counts (docs/platform/workload.md)."""
_POD_FIELDS = (
    "serviceAccountName",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "imagePullSecrets",
    "containers",
    "volumes",
)
"""What Knative takes of a pod."""
_NAMES_OF_PORTS = {"http2": "h2c", "grpc": "h2c"}


def render_knative(inputs: WorkloadInputs, pods: Pods) -> list[KubeObject]:
    """The Service of Knative, and the host names that lead to it; nothing while the workload is suspended.

    Knative makes the Service and the Deployments behind it by itself.
    """
    desired = inputs.template.desired
    if desired.suspended:
        return []
    metadata = _build_metadata(inputs, workload_name(desired.key.name))
    if not is_open(inputs):
        metadata["labels"][_VISIBILITY] = "cluster-local"
    template = {
        "metadata": {
            "labels": pods.template["metadata"]["labels"],
            "annotations": {**pods.template["metadata"]["annotations"], **_build_scaling(desired)},
        },
        "spec": _build_pod(inputs, pods),
    }
    service = {"apiVersion": f"{GROUP}/v1", "kind": "Service", "metadata": metadata, "spec": {"template": template}}
    return [service, *(_render_mapping(inputs, host) for host in _list_hosts(inputs))]


def is_whole_host(route: HostRoute, first: int) -> bool:
    """Whether all requests for a host name go to the port ``first``, unchanged: Knative has no other routes."""
    return bool(route.hosts) and not route.hosts[0].startswith("*") and route.rules == (PathRule(first),)


def _list_hosts(inputs: WorkloadInputs) -> list[str]:
    first = next(iter(list_ports(inputs.template.spec)), 0)
    return sorted({host for route in plan_routes(inputs) if is_whole_host(route, first) for host in route.hosts})


def _render_mapping(inputs: WorkloadInputs, host: str) -> KubeObject:
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Service", "name": workload_name(inputs.owner.key.name)}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "DomainMapping",
        "metadata": _build_metadata(inputs, host),
        "spec": {"ref": reference},
    }


def _build_scaling(desired: WorkloadSpec) -> dict[str, str]:
    """The annotations for the autoscaler of Knative."""
    scale, metric = desired.options.autoscaling, metric_of(desired.type, desired.options)
    if metric == "disabled":
        fixed = str(max(1, scale.min_scale))
        return {f"{_SCALING}max-scale": fixed, f"{_SCALING}min-scale": fixed}
    values = {"max-scale": str(scale.max_scale), "metric": metric, "min-scale": str(scale.min_scale)}
    if metric in RESOURCE_METRICS:
        memory = sum(container.memory for container in desired.containers) * scale.target // 100 // MIB
        target = str(memory if metric == "memory" else scale.target)
        values |= {"class": f"hpa.{_SCALING[:-1]}", "target": target, "min-scale": str(max(1, scale.min_scale))}
    else:
        values |= {
            "class": f"kpa.{_SCALING[:-1]}",
            "panic-threshold-percentage": _PANIC_THRESHOLD,
            "panic-window-percentage": _PANIC_WINDOW,
            "scale-to-zero-pod-retention-period": f"{max(0, scale.scale_to_zero_delay - _WINDOW)}s",
            "target": str(scale.target),
            "target-utilization-percentage": "100",
            "window": f"{_WINDOW}s",
        }
    return {f"{_SCALING}{name}": value for name, value in sorted(values.items())}


def _build_pod(inputs: WorkloadInputs, pods: Pods) -> dict[str, Any]:
    options, spec = inputs.template.desired.options, pods.template["spec"]
    pod = {name: spec[name] for name in _POD_FIELDS if name in spec}
    user = spec["securityContext"].get("runAsUser")
    protocols = list_ports(inputs.template.spec)
    return {
        **drop_empty({"containerConcurrency": options.autoscaling.max_concurrency or None}),
        "timeoutSeconds": options.timeout_seconds,
        **pod,
        "containers": [_adapt_container(container, user, protocols) for container in spec["containers"]],
    }


def _adapt_container(container: dict[str, Any], user: int | None, protocols: dict[int, str]) -> dict[str, Any]:
    """A container as Knative takes it: it ends containers itself, and sets PORT where one serves requests."""
    ports = [port["containerPort"] for port in container.get("ports", []) if port["containerPort"] in protocols]
    security = {
        **container["securityContext"],
        "seccompProfile": {"type": "RuntimeDefault"},
        **({"runAsUser": user} if user is not None else {}),
    }
    fields = {
        **{name: value for name, value in container.items() if name != "lifecycle"},
        "env": [entry for entry in container["env"] if not ports or entry["name"] != PORT],
        "ports": [
            drop_empty({"containerPort": port, "name": _NAMES_OF_PORTS.get(protocols[port]), "protocol": "TCP"})
            for port in ports[:1]
        ],
        "securityContext": security,
    }
    return drop_empty(fields)


def _build_metadata(inputs: WorkloadInputs, name: str) -> dict[str, Any]:
    return build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
