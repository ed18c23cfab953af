"""The objects of a GVC: its namespace, the parent of its ApplySet, what it denies, and its pull secrets."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import NamespaceInputs
from reconciler.engines.kubernetes.rendering.names import (
    APPLYSET_ID,
    APPLYSET_KINDS,
    APPLYSET_TOOL,
    TOOL,
    applyset_id,
    build_annotations,
    build_labels,
    build_metadata,
    digest_content,
    shared_name,
)
from reconciler.engines.kubernetes.rendering.network_policies import build_default_policy
from reconciler.engines.workload.secrets import make_secret_error
from reconciler.model.key import Key

GROUP_KINDS = (
    "CronJob.batch",
    "Deployment.apps",
    "HorizontalPodAutoscaler.autoscaling",
    "Ingress.networking.k8s.io",
    "NetworkPolicy.networking.k8s.io",
    "PodDisruptionBudget.policy",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet.apps",
)
"""The kinds of objects that every cluster serves and that this program applies."""
_GATEWAY_KINDS = ("HTTPRoute.gateway.networking.k8s.io",)
_KEDA_KINDS = ("HTTPScaledObject.http.keda.sh",)
_KNATIVE_KINDS = ("DomainMapping.serving.knative.dev", "Service.serving.knative.dev")
_DOCKER_CONFIG = ".dockerconfigjson"
_GOOGLE_REGISTRIES = ("gcr.io", "*.gcr.io", "*.pkg.dev")
"""The registries of Google, as patterns of the kubelet."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def render_namespace(inputs: NamespaceInputs) -> list[KubeObject]:
    """The objects of a GVC. Raises EngineError if a pull secret cannot be used."""
    return [
        _render_namespace_object(inputs),
        _render_parent(inputs),
        _render_default_policy(inputs),
        *(_render_pull_secret(inputs, key) for key in inputs.pull_secrets if _is_login(inputs, key)),
    ]


def list_pull_secrets(inputs: NamespaceInputs) -> tuple[str, ...]:
    """The names of the Secrets with which images of the GVC are pulled. Raises EngineError."""
    return tuple(_name_pull_secret(inputs, key) for key in inputs.pull_secrets if _is_login(inputs, key))


def list_group_kinds(inputs: NamespaceInputs) -> tuple[str, ...]:
    """The kinds, with their groups, that objects of the namespace may have, sorted."""
    features = inputs.features
    more = _GATEWAY_KINDS * features.gateway_api + _KNATIVE_KINDS * features.knative + _KEDA_KINDS * features.keda_http
    return tuple(sorted((*GROUP_KINDS, *more)))


def _render_namespace_object(inputs: NamespaceInputs) -> KubeObject:
    metadata = {
        "name": inputs.namespace,
        "labels": build_labels(inputs.owner, inputs.org),
        "annotations": build_annotations(inputs.owner),
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _render_parent(inputs: NamespaceInputs) -> KubeObject:
    """The parent of the ApplySet of the namespace."""
    metadata: dict[str, Any] = {
        "name": TOOL,
        "namespace": inputs.namespace,
        "labels": {**build_labels(inputs.owner, inputs.org), APPLYSET_ID: applyset_id(inputs.namespace)},
        "annotations": {
            APPLYSET_KINDS: ",".join(list_group_kinds(inputs)),
            APPLYSET_TOOL: f"{TOOL}/v1",
            **build_annotations(inputs.owner),
        },
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def _render_default_policy(inputs: NamespaceInputs) -> KubeObject:
    metadata = build_metadata(inputs.owner, inputs.org, inputs.namespace, shared_name("default-deny"))
    spec = build_default_policy(inputs.options)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def _render_pull_secret(inputs: NamespaceInputs, key: Key) -> KubeObject:
    metadata = build_metadata(inputs.owner, inputs.org, inputs.namespace, _name_pull_secret(inputs, key))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/dockerconfigjson",
        "immutable": True,
        "data": {_DOCKER_CONFIG: base64.b64encode(_read_docker_config(inputs, key)).decode()},
    }


def _name_pull_secret(inputs: NamespaceInputs, key: Key) -> str:
    digest = digest_content(inputs.salt, inputs.gvc.encode(), str(key).encode(), _read_docker_config(inputs, key))
    return shared_name(f"pull-{digest}")


def _is_login(inputs: NamespaceInputs, key: Key) -> bool:
    """Whether a secret has a login as it is; that of the type ecr only has what a token is asked for with."""
    return inputs.reveal(key).type in ("docker", "gcp")


def _read_docker_config(inputs: NamespaceInputs, key: Key) -> bytes:
    secret = inputs.reveal(key)
    if not isinstance(secret.content, str):
        raise make_secret_error(f"{key} is no login of a registry: its data are not one text")
    if secret.type == "docker":
        return secret.content.encode()
    auth = base64.b64encode(f"_json_key:{secret.content}".encode()).decode()
    return _encode({"auths": {registry: {"auth": auth} for registry in _GOOGLE_REGISTRIES}})
