"""The number of replicas: fixed, or left to a HorizontalPodAutoscaler; and how many may be missing at once."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, ClusterOptions, WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import build_metadata, select_pods, workload_name
from reconciler.engines.kubernetes.rendering.services import is_open, list_ports
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.model.kinds.workload import RESOURCE_METRICS, metric_of

_UP_SECONDS, _DOWN_SECONDS = 0, 300
"""The windows whose highest recommendation counts (docs/platform/workload.md#scaling-decisions)."""
_EVICTS_UNHEALTHY_SINCE = (1, 31)


class Scaler(StrEnum):
    """What changes the number of replicas of a Deployment or StatefulSet."""

    NONE = ""
    RESOURCES = "HorizontalPodAutoscaler"
    REQUESTS = "HTTPScaledObject"


def is_scaled(desired: WorkloadSpec) -> bool:
    """Whether the number of replicas depends on a metric."""
    scale = desired.options.autoscaling
    changes = metric_of(desired.type, desired.options) != "disabled" and scale.min_scale < scale.max_scale
    return changes and not desired.suspended and desired.type is not Type.CRON


def uses_knative(desired: WorkloadSpec, features: ClusterFeatures) -> bool:
    """Whether a workload is a Service of Knative, which scales it, also to zero."""
    return desired.type is Type.SERVERLESS and features.knative


def choose_scaler(inputs: WorkloadInputs) -> Scaler:
    """What owns the number of replicas of a workload that is none of Knative's.

    A HorizontalPodAutoscaler needs a metric of the use of resources, and its source. The HTTP add-on of KEDA needs
    requests by host name, which it counts.
    """
    desired, metric = inputs.template.desired, metric_of(inputs.template.desired.type, inputs.template.desired.options)
    if not is_scaled(desired):
        return Scaler.NONE
    if metric in RESOURCE_METRICS:
        return Scaler.RESOURCES if inputs.features.metrics else Scaler.NONE
    first = next(iter(list_ports(inputs.template.spec).values()), "tcp")
    by_requests = metric in ("rps", "concurrency") and not desired.stateful and first != "tcp" and is_open(inputs)
    return Scaler.REQUESTS if by_requests and has_interceptor(inputs.features, inputs.options) else Scaler.NONE


def has_interceptor(features: ClusterFeatures, options: ClusterOptions) -> bool:
    """Whether requests by host name can go through the HTTP add-on of KEDA."""
    return features.keda_http and features.gateway_api and bool(options.gateway and options.keda_namespace)


def fixed_replicas(inputs: WorkloadInputs) -> int | None:
    """The number of replicas; None where an autoscaler owns it."""
    if inputs.template.desired.suspended:
        return 0
    return None if choose_scaler(inputs) is not Scaler.NONE else least_replicas(inputs.template.desired)


def least_replicas(desired: WorkloadSpec) -> int:
    """The least number of replicas of a workload that is not suspended; nothing scales a Deployment to zero."""
    return max(1, desired.options.autoscaling.min_scale)


def render_autoscaler(inputs: WorkloadInputs, kind: str) -> list[KubeObject]:
    """The autoscaler of a workload, which is a ``kind`` of the group apps; none if its number of replicas is fixed."""
    desired = inputs.template.desired
    if choose_scaler(inputs) is not Scaler.RESOURCES:
        return []
    scale, name = desired.options.autoscaling, workload_name(desired.key.name)
    target = {"type": "Utilization", "averageUtilization": scale.target}
    metric = {"type": "Resource", "resource": {"name": metric_of(desired.type, desired.options), "target": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
        "minReplicas": least_replicas(desired),
        "maxReplicas": scale.max_scale,
        "metrics": [metric],
        "behavior": {
            "scaleUp": {"stabilizationWindowSeconds": _UP_SECONDS},
            "scaleDown": {"stabilizationWindowSeconds": _DOWN_SECONDS},
        },
    }
    return [_build_object("autoscaling/v2", "HorizontalPodAutoscaler", inputs, spec)]


def render_disruption_budget(inputs: WorkloadInputs) -> list[KubeObject]:
    """How many replicas may be missing while nodes are emptied; nothing for a single one, which could never move."""
    desired = inputs.template.desired
    if desired.suspended or desired.type is Type.CRON or least_replicas(desired) < 2:
        return []
    asked = inputs.template.spec.rollout_options.max_unavailable_replicas
    spec: dict[str, Any] = {
        "maxUnavailable": parse_missing(asked) or 1,
        "selector": {"matchLabels": select_pods(desired.key.name)},
    }
    if inputs.features.version >= _EVICTS_UNHEALTHY_SINCE:
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return [_build_object("policy/v1", "PodDisruptionBudget", inputs, spec)]


def parse_share(asked: int | str) -> int | str:
    """``3``, ``"3"`` or ``"25%"`` as Kubernetes has it; 0 for any form of it."""
    if isinstance(asked, int) or not asked.endswith("%"):
        return int(asked)
    percent = int(asked[:-1])
    return f"{percent}%" if percent else 0


def parse_missing(asked: int | str) -> int | str:
    """As ``parse_share``, for replicas that may be missing: Kubernetes refuses more than 100 %."""
    share = parse_share(asked)
    return "100%" if isinstance(share, str) and int(share[:-1]) > 100 else share


def _build_object(api: str, kind: str, inputs: WorkloadInputs, spec: dict[str, Any]) -> KubeObject:
    name = workload_name(inputs.owner.key.name)
    metadata = build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
