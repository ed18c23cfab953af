"""The pods of a workload: their template, with the Secrets and claims that it refers to."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.containers import build_container, grace_seconds
from reconciler.engines.kubernetes.rendering.environment import build_pod_environment
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import (
    KEY,
    MOVED_TAGS,
    PREFIX,
    RESTART,
    VERSION,
    account_name,
    build_pod_labels,
    format_label,
    format_label_value,
)
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.volumes import build_pod_volumes
from reconciler.engines.workload.spec import Type

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class Pods(msgspec.Struct, frozen=True):
    """The pod template of a workload, its claim templates, and the Secrets that have to exist before its pods."""

    template: dict[str, Any]
    claim_templates: list[KubeObject]
    secrets: list[KubeObject]

    def __repr__(self) -> str:
        return f"Pods(secrets={[secret['metadata']['name'] for secret in self.secrets]})"


def build_pods(inputs: WorkloadInputs) -> Pods:
    """The pods of a workload. Raises EngineError if a secret, an image or a mount cannot be used."""
    environment, volumes = build_pod_environment(inputs), build_pod_volumes(inputs)
    spec = inputs.template.spec
    containers = [
        build_container(
            container, inputs, environment.entries.get(container.name, []), volumes.mounts.get(container.name, [])
        )
        for container in spec.containers
    ]
    template = {
        "metadata": {"labels": _build_pod_labels(inputs), "annotations": _build_pod_annotations(inputs)},
        "spec": {**_build_pod_fields(inputs), "containers": containers, **drop_empty({"volumes": volumes.volumes})},
    }
    secrets = ([environment.secret] if environment.secret is not None else []) + volumes.secrets
    return Pods(template, volumes.claim_templates, secrets)


def _build_pod_fields(inputs: WorkloadInputs) -> dict[str, Any]:
    desired = inputs.template.desired
    names = [format_label(container.name) for container in desired.containers]
    fields = {
        "serviceAccountName": account_name(desired.key.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "imagePullSecrets": [{"name": name} for name in inputs.pull_secrets],
        # Containers of a workload reach each other by name (docs/platform/workload.md#ports).
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": names}] if len(names) > 1 else [],
        "securityContext": _build_pod_security(inputs),
        "terminationGracePeriodSeconds": grace_seconds(desired),
    }
    if desired.type is Type.CRON and desired.job is not None:
        fields["restartPolicy"] = desired.job.restart_policy
    return drop_empty(fields)


def _build_pod_security(inputs: WorkloadInputs) -> dict[str, Any]:
    desired = inputs.template.desired
    return drop_empty(
        {
            "runAsUser": desired.user,
            "fsGroup": desired.group,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    )


def _build_pod_labels(inputs: WorkloadInputs) -> dict[str, str]:
    """The labels of pods; series of their metrics get them too (docs/platform/workload.md#metrics)."""
    context = inputs.template.env_context
    return {
        **build_pod_labels(inputs.owner, context.org),
        f"{PREFIX}provider": format_label_value(context.provider),
        f"{PREFIX}region": format_label_value(context.region),
        VERSION: str(inputs.owner.version),
    }


def _build_pod_annotations(inputs: WorkloadInputs) -> dict[str, str]:
    containers = inputs.template.desired.containers
    owner = inputs.owner
    annotations = {
        KEY: str(owner.key),
        VERSION: str(owner.version),
        _DEFAULT_CONTAINER: format_label(containers[0].name),
    }
    metrics = next((container.metrics for container in containers if container.metrics is not None), None)
    if metrics is not None:
        annotations |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(metrics.port),
            "prometheus.io/path": metrics.path,
        }
    marks = {RESTART: inputs.restarts, MOVED_TAGS: str(inputs.moved_tags or "")}
    return annotations | {name: mark for name, mark in marks.items() if mark}
