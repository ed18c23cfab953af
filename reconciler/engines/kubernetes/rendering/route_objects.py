"""Objects for requests from outside: HTTPRoutes of the Gateway API where it is served, otherwise Ingresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.autoscaling import Scaler, choose_scaler, least_replicas
from reconciler.engines.kubernetes.rendering.environment import build_secret
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import build_metadata, workload_name
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.routes import HostRoute, PathRule, plan_routes
from reconciler.engines.kubernetes.rendering.services import list_ports
from reconciler.engines.workload.routing.table import HTTP, HTTPS
from reconciler.engines.workload.secrets import make_secret_error
from reconciler.iteration import iterate_batches
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import metric_of

GATEWAY_GROUP = "gateway.networking.k8s.io"
_MOST_RULES = 16
"""The most rules of an HTTPRoute."""
INTERCEPTOR = "keda-add-ons-http-interceptor-proxy"
"""The Service of KEDA that counts requests. A ReferenceGrant in its namespace has to allow routes to it."""
_INTERCEPTOR_PORT = 8080
_ISSUER = "cert-manager.io/cluster-issuer"


def uses_gateway(inputs: WorkloadInputs) -> bool:
    """Whether routes are those of the Gateway API."""
    return inputs.features.gateway_api and bool(inputs.options.gateway)


def render_routes(inputs: WorkloadInputs) -> list[KubeObject]:
    """The routes of a workload; none where the settings name no gateway. Raises EngineError for a certificate."""
    routes = plan_routes(inputs)
    if uses_gateway(inputs):
        return [kube_object for route in routes for kube_object in _render_http_routes(inputs, route)]
    if inputs.options.ingress_class:
        served = (route for route in routes if route.number in (HTTP, HTTPS))
        return [kube_object for route in served for kube_object in _render_ingress(inputs, route)]
    return []


def render_request_scaler(inputs: WorkloadInputs) -> list[KubeObject]:
    """The object by which KEDA scales a workload by its requests; none if its number of replicas is fixed.

    Only requests by host name are counted, so one replica stays for those of other workloads.
    """
    hosts = sorted({host for route in plan_routes(inputs) for host in route.hosts})
    if choose_scaler(inputs) is not Scaler.REQUESTS or not hosts:
        return []
    desired = inputs.template.desired
    scale, name = desired.options.autoscaling, workload_name(desired.key.name)
    measure: dict[str, Any] = {"concurrency": {"targetValue": scale.target}}
    if metric_of(desired.type, desired.options) == "rps":
        measure = {"requestRate": {"granularity": "1s", "targetValue": scale.target, "window": "1m"}}
    spec = {
        "hosts": hosts,
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": name,
            "port": next(iter(list_ports(inputs.template.spec))),
            "service": name,
        },
        "replicas": {"max": scale.max_scale, "min": least_replicas(desired)},
        "scaledownPeriod": scale.scale_to_zero_delay,
        "scalingMetric": measure,
    }
    metadata = _build_route_metadata(inputs, name)
    return [{"apiVersion": "http.keda.sh/v1alpha1", "kind": "HTTPScaledObject", "metadata": metadata, "spec": spec}]


def _render_http_routes(inputs: WorkloadInputs, route: HostRoute) -> Iterator[KubeObject]:
    """One object, or several where there are more rules than one can have."""
    for index, rules in enumerate(iterate_batches(route.rules, _MOST_RULES)):
        spec = drop_empty(
            {
                "parentRefs": [_build_parent(inputs, route)],
                "hostnames": list(route.hosts),
                "rules": [_build_rule(inputs, rule) for rule in rules],
            }
        )
        yield {
            "apiVersion": f"{GATEWAY_GROUP}/v1",
            "kind": "HTTPRoute",
            "metadata": _build_route_metadata(inputs, f"{route.name}.{index}" if index else route.name),
            "spec": spec,
        }


def _build_parent(inputs: WorkloadInputs, route: HostRoute) -> dict[str, Any]:
    """The Gateway; with a port only where not all of its listeners are meant. 443 of a domain is served at 80 too."""
    port = None if route.number == HTTPS and not route.secure else route.number
    options = inputs.options
    return drop_empty(
        {
            "group": GATEWAY_GROUP,
            "kind": "Gateway",
            "name": options.gateway,
            "namespace": options.gateway_namespace,
            "port": port,
        }
    )


def _build_rule(inputs: WorkloadInputs, rule: PathRule) -> dict[str, Any]:
    path = {"type": "PathPrefix", "value": rule.prefix}
    if rule.regex:
        path = {"type": "RegularExpression", "value": rule.regex}
    filters: list[dict[str, Any]] = []
    if rule.headers:
        headers = [{"name": name, "value": value} for name, value in rule.headers]
        filters.append({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": headers}})
    if rule.replacement is not None and not rule.regex:
        replacement = {"type": "ReplacePrefixMatch", "replacePrefixMatch": rule.replacement or "/"}
        filters.append({"type": "URLRewrite", "urlRewrite": {"path": replacement}})
    return drop_empty(
        {
            "matches": [{"path": path}],
            "filters": filters,
            "backendRefs": [{"group": "", "kind": "Service", **_build_backend(inputs, rule), "weight": 1}],
            "timeouts": {"request": f"{inputs.template.desired.options.timeout_seconds}s"},
        }
    )


def _build_backend(inputs: WorkloadInputs, rule: PathRule) -> dict[str, Any]:
    if _is_counted(inputs, rule):
        return {"name": INTERCEPTOR, "namespace": inputs.options.keda_namespace, "port": _INTERCEPTOR_PORT}
    return {"name": workload_name(inputs.owner.key.name), "port": rule.port}


def _is_counted(inputs: WorkloadInputs, rule: PathRule) -> bool:
    """Whether requests go through the interceptor of KEDA, which passes them on to the first port."""
    return choose_scaler(inputs) is Scaler.REQUESTS and rule.port == next(iter(list_ports(inputs.template.spec)))


def _render_ingress(inputs: WorkloadInputs, route: HostRoute) -> Iterator[KubeObject]:
    """An Ingress, after the Secret with the certificate of its domain if that has one of its own."""
    paths = list(_list_paths(inputs, route))
    if not paths:
        return
    secret = f"{route.name}-tls" if inputs.options.issuer and route.hosts else ""
    if route.certificate and route.hosts:
        certificate = _render_certificate(inputs, route.certificate)
        secret = certificate["metadata"]["name"]
        yield certificate
    rules = [{"host": host, "http": {"paths": paths}} for host in route.hosts] or [{"http": {"paths": paths}}]
    spec = drop_empty(
        {
            "ingressClassName": inputs.options.ingress_class,
            "rules": rules,
            "tls": [{"hosts": list(route.hosts), "secretName": secret}] if secret else [],
        }
    )
    metadata = _build_route_metadata(inputs, route.name)
    if secret and not route.certificate:
        metadata["annotations"][_ISSUER] = inputs.options.issuer
    yield {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _list_paths(inputs: WorkloadInputs, route: HostRoute) -> Iterator[dict[str, Any]]:
    service = workload_name(inputs.owner.key.name)
    for rule in route.rules:
        if not rule.regex or rule.regex.startswith("/"):
            yield {
                "path": rule.regex or rule.prefix,
                "pathType": "ImplementationSpecific" if rule.regex else "Prefix",
                "backend": {"service": {"name": service, "port": {"number": rule.port}}},
            }


def _render_certificate(inputs: WorkloadInputs, link: str) -> KubeObject:
    key = Key(Kind.SECRET, "", link.rpartition("/")[2])
    content = inputs.reveal(key).content
    parts = content if isinstance(content, dict) else {}
    chain = "\n".join(str(parts[name]).strip() for name in ("cert", "chain") if parts.get(name))
    private_key = str(parts.get("key", ""))
    if not chain or not private_key:
        raise make_secret_error(f"{key} is no certificate: it needs `cert` and `key`")
    data = {"tls.crt": f"{chain}\n".encode(), "tls.key": private_key.encode()}
    return {**build_secret(inputs, "tls", data), "type": "kubernetes.io/tls"}


def _build_route_metadata(inputs: WorkloadInputs, name: str) -> dict[str, Any]:
    return build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
