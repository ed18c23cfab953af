"""Routes from outside to workloads: by the Gateway API where it is served, otherwise an Ingress."""

from __future__ import annotations

from typing import Any

from reconciler.engines.kubernetes.rendering.inputs import KubeObject, WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import build_metadata, endpoint_route_name, workload_name
from reconciler.engines.kubernetes.rendering.network_policies import is_open
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.services import list_ports

GATEWAY_GROUP = "gateway.networking.k8s.io"


def render_routes(inputs: WorkloadInputs) -> list[KubeObject]:
    """The routes of a workload; none while it is suspended, or where addresses of clients would have to be compared.

    A gateway does not know the firewall of a workload: what it lets in could be anyone.
    """
    desired, ports = inputs.template.desired, list_ports(inputs.template.spec)
    if desired.suspended or not ports or not is_open(inputs) or next(iter(ports.values())) == "tcp":
        return []
    if inputs.features.gateway_api and inputs.options.gateway:
        return [_render_endpoint_route(inputs, next(iter(ports)))]
    if inputs.options.ingress_class:
        return [_render_endpoint_ingress(inputs, next(iter(ports)))]
    return []


def endpoint_hosts(inputs: WorkloadInputs) -> tuple[str, str]:
    """The host names of the canonical endpoint, and of that of the location."""
    context = inputs.template.env_context
    host = f"{context.workload}-{context.alias}"
    return f"{host}.{context.endpoint_domain}".lower(), f"{host}.{context.location}.{context.endpoint_domain}".lower()


def _render_endpoint_route(inputs: WorkloadInputs, port: int) -> KubeObject:
    options, name = inputs.options, workload_name(inputs.owner.key.name)
    parent = {
        "group": GATEWAY_GROUP,
        "kind": "Gateway",
        "name": options.gateway,
        "namespace": options.gateway_namespace,
    }
    rule = {
        "backendRefs": [{"group": "", "kind": "Service", "name": name, "port": port, "weight": 1}],
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "timeouts": {"request": f"{inputs.template.desired.options.timeout_seconds}s"},
    }
    spec = {"parentRefs": [drop_empty(parent)], "hostnames": list(endpoint_hosts(inputs)), "rules": [rule]}
    return {
        "apiVersion": f"{GATEWAY_GROUP}/v1",
        "kind": "HTTPRoute",
        "metadata": _build_route_metadata(inputs),
        "spec": spec,
    }


def _render_endpoint_ingress(inputs: WorkloadInputs, port: int) -> KubeObject:
    backend = {"service": {"name": workload_name(inputs.owner.key.name), "port": {"number": port}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    rules = [{"host": host, "http": {"paths": [path]}} for host in endpoint_hosts(inputs)]
    spec = {"ingressClassName": inputs.options.ingress_class, "rules": rules}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": _build_route_metadata(inputs),
        "spec": spec,
    }


def _build_route_metadata(inputs: WorkloadInputs) -> dict[str, Any]:
    name = endpoint_route_name(inputs.owner.key.name)
    return build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
