"""The number of replicas: fixed, or left to a HorizontalPodAutoscaler; and how many may be missing at once."""

from __future__ import annotations

from typing import Any

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, KubeObject, WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import WORKLOAD, build_metadata, format_label_value, workload_name
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.model.kinds.workload import RESOURCE_METRICS, metric_of

_UP_SECONDS, _DOWN_SECONDS = 0, 300
"""The windows whose highest recommendation counts (docs/platform/workload.md#scaling-decisions)."""
_EVICTS_UNHEALTHY_SINCE = (1, 31)


def is_scaled(desired: WorkloadSpec) -> bool:
    """Whether the number of replicas depends on a metric."""
    scale = desired.options.autoscaling
    changes = metric_of(desired.type, desired.options) != "disabled" and scale.min_scale < scale.max_scale
    return changes and not desired.suspended and desired.type is not Type.CRON


def has_autoscaler(desired: WorkloadSpec, features: ClusterFeatures) -> bool:
    """Whether an autoscaler owns the number of replicas: it needs a metric of the use of resources, and its source."""
    return is_scaled(desired) and features.metrics and metric_of(desired.type, desired.options) in RESOURCE_METRICS


def fixed_replicas(desired: WorkloadSpec, features: ClusterFeatures) -> int | None:
    """The number of replicas; None where an autoscaler owns it. Without Knative nothing scales to zero by itself."""
    if desired.suspended:
        return 0
    return None if has_autoscaler(desired, features) else least_replicas(desired)


def least_replicas(desired: WorkloadSpec) -> int:
    """The least number of replicas of a workload that is not suspended."""
    return max(1, desired.options.autoscaling.min_scale)


def render_autoscaler(inputs: WorkloadInputs, kind: str) -> list[KubeObject]:
    """The autoscaler of a workload, which is a ``kind`` of the group apps; none if its number of replicas is fixed."""
    desired = inputs.template.desired
    if not has_autoscaler(desired, inputs.features):
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


def select_pods(workload: str) -> dict[str, str]:
    """The label by which the pods of a workload are found in their namespace."""
    return {WORKLOAD: format_label_value(workload)}


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
