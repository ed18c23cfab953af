"""The environment of containers: plain values in the pod, and those that need not be read there in a Secret."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import build_metadata, digest_content, secret_name
from reconciler.engines.workload.environment import ContainerView, build_environment
from reconciler.engines.workload.revision_hash import variables_of
from reconciler.engines.workload.variable_expansion import find_embedded_names
from reconciler.model.kinds.workload import Container
from reconciler.model.platform import SECRET_URI, SPELLING

_OF_PROCESSES = ("RECONCILER_ENDPOINTS", "RECONCILER_VOLUMES")
"""Variables with directories of this host; in a pod, volumes are at their paths."""
_encode = msgspec.json.Encoder(order="deterministic").encode


class PodEnvironment(msgspec.Struct, frozen=True):
    """The entries ``env`` by container, and the Secret that they refer to; ``secret`` is None without any."""

    entries: Mapping[str, list[dict[str, Any]]]
    secret: KubeObject | None

    def __repr__(self) -> str:
        return f"PodEnvironment({sorted(self.entries)})"


def build_pod_environment(inputs: WorkloadInputs) -> PodEnvironment:
    """The environment of all containers of a workload. Raises EngineError as ``build_environment`` does."""
    values = {container.name: _build_values(container, inputs) for container in inputs.template.spec.containers}
    secrets = {
        f"{container.name}.{name}": values[container.name][name].encode()
        for container in inputs.template.spec.containers
        for name in sorted(_find_secret_names(container, inputs) & values[container.name].keys())
    }
    secret = build_secret(inputs, "env", secrets) if secrets else None
    source = secret["metadata"]["name"] if secret is not None else ""
    entries = {
        container: [_build_entry(name, value, f"{container}.{name}", secrets, source) for name, value in env.items()]
        for container, env in values.items()
    }
    return PodEnvironment(entries, secret)


def build_secret(inputs: WorkloadInputs, role: str, content: Mapping[str, bytes]) -> KubeObject:
    """An immutable Secret with ``content``, named by it: another content is another Secret, and so a rollout."""
    owner = inputs.owner
    text = _encode({name: base64.b64encode(value).decode() for name, value in content.items()})
    digest = digest_content(inputs.token.encode(), str(owner.key).encode(), role.encode(), text)
    metadata = build_metadata(
        owner, inputs.template.env_context.org, inputs.namespace, secret_name(owner.key.name, role, digest)
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(value).decode() for name, value in sorted(content.items())},
    }


def _build_values(container: Container, inputs: WorkloadInputs) -> dict[str, str]:
    """All variables of a container, sorted by name: the same as on a host whose containers have images."""
    context = replace(inputs.template.env_context, namespace=inputs.namespace, token=inputs.token, scheme=inputs.scheme)
    ports = {port: port for spec in inputs.template.desired.containers for port in spec.assigned_ports}
    view = ContainerView("", "", ports, container.working_dir)
    env = build_environment(container, context, view, inputs.reveal)
    return {name: value for name, value in env.items() if value or name not in _OF_PROCESSES}


def _find_secret_names(container: Container, inputs: WorkloadInputs) -> set[str]:
    """The variables whose value is secret, or embeds one that is, directly or not."""
    written = variables_of(container, inputs.template.env_context.gvc_env)
    names = {f"{spelling.upper()}_TOKEN" for spelling in (SPELLING, inputs.scheme)}
    names |= {name for name, value in written.items() if value.startswith(SECRET_URI)}
    users: dict[str, list[str]] = {}
    for name, value in written.items():
        for embedded in find_embedded_names(value):
            users.setdefault(embedded, []).append(name)
    waiting = list(names)
    while waiting:
        new = set(users.get(waiting.pop(), ())) - names
        names |= new
        waiting += new
    return names


def _build_entry(name: str, value: str, key: str, secrets: Mapping[str, bytes], source: str) -> dict[str, Any]:
    if key in secrets:
        return {"name": name, "valueFrom": {"secretKeyRef": {"key": key, "name": source}}}
    # Kubernetes would expand it once more, and with it what a manifest wrote as `$$(NAME)`.
    return {"name": name, "value": value.replace("$", "$$")} if value else {"name": name}
