"""All objects of a workload, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.autoscaling import (
    fixed_replicas,
    parse_missing,
    parse_share,
    render_autoscaler,
    render_disruption_budget,
    uses_knative,
)
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.knative import render_knative
from reconciler.engines.kubernetes.rendering.names import account_name, build_metadata, select_pods, workload_name
from reconciler.engines.kubernetes.rendering.network_policies import render_policy
from reconciler.engines.kubernetes.rendering.pods import Pods, build_pods
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.route_objects import render_request_scaler, render_routes
from reconciler.engines.kubernetes.rendering.schedules import convert_schedule
from reconciler.engines.kubernetes.rendering.services import render_services, render_stream_service
from reconciler.engines.workload.spec import Type
from reconciler.engines.workload.status import IN_A_ROW
from reconciler.model.kinds.workload import Job

_REVISIONS = 2
"""Old versions that stay in the history of a Deployment or StatefulSet."""
_PROGRESS_SECONDS = 600
"""Seconds without progress, beyond those of minReadySeconds, after which a rollout counts as stuck."""
_LATE_SECONDS = 120
"""Seconds by which an execution may start late. With more, the times of a suspension would run at its end."""
_NO_LIMIT = 2**31 - 1
"""How often containers start again with OnFailure: until they succeed, or their deadline."""


def render_workload(inputs: WorkloadInputs) -> list[KubeObject]:
    """The objects of a workload. Raises EngineError if a secret, an image or a mount cannot be used."""
    pods, desired = build_pods(inputs), inputs.template.desired
    kind = "StatefulSet" if desired.stateful else "Deployment"
    objects = [_render_account(inputs), *pods.secrets, render_policy(inputs)]
    if desired.type is Type.CRON:
        return [*objects, _render_cron_job(inputs, pods)]
    if uses_knative(desired, inputs.features):
        return [*objects, *render_knative(inputs, pods)]
    return [
        *objects,
        *render_services(inputs),
        *render_stream_service(inputs),
        _render_stateful_set(inputs, pods) if desired.stateful else _render_deployment(inputs, pods),
        *render_autoscaler(inputs, kind),
        *render_request_scaler(inputs),
        *render_disruption_budget(inputs),
        *render_routes(inputs),
    ]


def _render_account(inputs: WorkloadInputs) -> KubeObject:
    """The account of the pods: none of its own tokens is mounted, since PLATFORM_TOKEN is what a workload has."""
    account = _build_object("v1", "ServiceAccount", inputs, account_name(inputs.owner.key.name))
    return {**account, "automountServiceAccountToken": False}


def _render_deployment(inputs: WorkloadInputs, pods: Pods) -> KubeObject:
    desired, asked = inputs.template.desired, inputs.template.spec.rollout_options
    surge, missing = parse_share(asked.max_surge_replicas), parse_missing(asked.max_unavailable_replicas)
    # Without both, nothing could be replaced.
    limits = {"maxSurge": surge, "maxUnavailable": missing if surge or missing else 1}
    spec = drop_empty(
        {
            "replicas": fixed_replicas(inputs),
            "revisionHistoryLimit": _REVISIONS,
            "progressDeadlineSeconds": _PROGRESS_SECONDS + asked.min_ready_seconds,
            "minReadySeconds": asked.min_ready_seconds or None,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": limits},
            "selector": {"matchLabels": select_pods(desired.key.name)},
            "template": pods.template,
        }
    )
    return {**_build_object("apps/v1", "Deployment", inputs), "spec": spec}


def _render_stateful_set(inputs: WorkloadInputs, pods: Pods) -> KubeObject:
    desired, asked = inputs.template.desired, inputs.template.spec.rollout_options
    name = workload_name(desired.key.name)
    spec = drop_empty(
        {
            "serviceName": name,
            "replicas": fixed_replicas(inputs),
            "revisionHistoryLimit": _REVISIONS,
            "minReadySeconds": asked.min_ready_seconds or None,
            "podManagementPolicy": "Parallel" if desired.rollout.parallel else "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": select_pods(desired.key.name)},
            "template": pods.template,
            "volumeClaimTemplates": pods.claim_templates,
        }
    )
    return {**_build_object("apps/v1", "StatefulSet", inputs), "spec": spec}


def _render_cron_job(inputs: WorkloadInputs, pods: Pods) -> KubeObject:
    desired = inputs.template.desired
    job = desired.job or Job()
    schedule = convert_schedule(job.schedule)
    template = drop_empty(
        {
            "backoffLimit": 0 if job.restart_policy == "Never" else _NO_LIMIT,
            "activeDeadlineSeconds": job.active_deadline_seconds,
            "template": pods.template,
        }
    )
    spec = {
        # A schedule that Kubernetes cannot have runs never instead of at other times.
        "schedule": schedule or job.schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": job.concurrency_policy,
        "suspend": desired.suspended or schedule is None,
        "startingDeadlineSeconds": _LATE_SECONDS,
        "successfulJobsHistoryLimit": job.history_limit,
        # Three failures in a row are a condition of the workload, so as many must be seen.
        "failedJobsHistoryLimit": max(job.history_limit, IN_A_ROW),
        "jobTemplate": {"metadata": pods.template["metadata"], "spec": template},
    }
    return {**_build_object("batch/v1", "CronJob", inputs), "spec": spec}


def _build_object(api: str, kind: str, inputs: WorkloadInputs, name: str = "") -> dict[str, Any]:
    name = name or workload_name(inputs.owner.key.name)
    metadata = build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
    return {"apiVersion": api, "kind": kind, "metadata": metadata}
