"""NetworkPolicies: the firewall of workloads (docs/platform/workload.md#firewall), and what a namespace denies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.autoscaling import Scaler, choose_scaler, uses_knative
from reconciler.engines.kubernetes.rendering.inputs import ClusterOptions, WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import (
    GVC,
    ORG,
    WORKLOAD,
    build_metadata,
    format_label_value,
    select_pods,
    workload_name,
)
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.engines.kubernetes.rendering.services import is_open, list_ports
from reconciler.engines.workload.spec import Type
from reconciler.model.addresses import METADATA
from reconciler.model.platform import RESTRICTED_USER

_NAMESPACE = "kubernetes.io/metadata.name"
_DNS_PORT = 53
_NODE_LOCAL_DNS = "169.254.20.10/32"
_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
_KNATIVE_PORTS = (8012, 8013, 8112)
"""The ports of the proxy in each pod of Knative: requests without HTTP/2, with it, and with TLS."""
_KNATIVE_METRICS = 9090
"""The port at which the autoscaler of Knative reads how many requests there are."""
_ANY_WORKLOAD = {"matchExpressions": [{"key": WORKLOAD, "operator": "Exists"}]}

Network = IPv4Network | IPv6Network


def render_policy(inputs: WorkloadInputs) -> KubeObject:
    """The policy of the pods of a workload; what neither it nor that of the namespace allows is denied."""
    desired = inputs.template.desired
    restricted = desired.user == RESTRICTED_USER
    name, context = workload_name(desired.key.name), inputs.template.env_context
    spec = drop_empty(
        {
            "podSelector": {"matchLabels": select_pods(desired.key.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [] if restricted else list(_list_inbound(inputs)),
            "egress": [] if restricted else list(_list_outbound(inputs)),
        }
    )
    metadata = build_metadata(inputs.owner, context.org, inputs.namespace, name)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def build_default_policy(options: ClusterOptions) -> dict[str, Any]:
    """The spec of the policy of a namespace: nothing enters or leaves but queries of names."""
    to: list[dict[str, Any]] = [{"namespaceSelector": _select_namespaces(options.dns_namespaces)}]
    to.append({"ipBlock": {"cidr": _NODE_LOCAL_DNS}})
    ports = [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("TCP", "UDP")]
    return {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{"ports": ports, "to": to}]}


def _list_inbound(inputs: WorkloadInputs) -> Iterator[dict[str, Any]]:
    desired, options = inputs.template.desired, inputs.options
    ports = list_ports(inputs.template.spec) if desired.type is not Type.CRON else {}
    http = [number for number, protocol in ports.items() if protocol != "tcp"]
    if ports:
        yield from _list_internal(inputs, list(ports), http)
    external = desired.firewall.external
    if http and external.inbound_allow_cidr:
        blocks = _build_blocks(external.inbound_allow_cidr, external.inbound_blocked_cidr, options)
        yield from _build_rules("from", blocks, http)
    if streams := sorted({stream.target.port or next(iter(ports)) for stream in inputs.routes.streams}):
        blocks = _build_blocks(external.inbound_allow_cidr, external.inbound_blocked_cidr, options)
        yield from _build_rules("from", blocks, streams)
    if http and (namespaces := sorted(_list_proxies(inputs))):
        at = [*_KNATIVE_PORTS, _KNATIVE_METRICS] if uses_knative(desired, inputs.features) else http
        yield from _build_rules("from", [{"namespaceSelector": _select_namespaces(namespaces)}], at)
    scraped = sorted({container.metrics.port for container in desired.containers if container.metrics is not None})
    if options.metrics_namespace:
        namespace = {"namespaceSelector": _select_namespaces((options.metrics_namespace,))}
        yield from _build_rules("from", [namespace], scraped)


def _list_proxies(inputs: WorkloadInputs) -> set[str]:
    """The namespaces of the programs that bring requests to a workload."""
    desired, options = inputs.template.desired, inputs.options
    if uses_knative(desired, inputs.features):
        return {options.gateway_namespace, options.knative_namespace} - {""}
    counted = {options.keda_namespace} if choose_scaler(inputs) is Scaler.REQUESTS else set()
    return ({options.gateway_namespace} if is_open(inputs) else set()) - {""} | counted


def _list_internal(inputs: WorkloadInputs, ports: list[int], http: list[int]) -> Iterator[dict[str, Any]]:
    """What other workloads reach: ports of the protocol tcp only those of the same GVC."""
    internal, org = inputs.template.desired.firewall.internal, inputs.template.env_context.org
    gvc = inputs.owner.key.gvc
    if internal.inbound_allow_type in ("same-gvc", "same-org"):
        yield from _build_rules("from", [{"podSelector": _ANY_WORKLOAD}], ports)
    if internal.inbound_allow_type == "same-org":
        namespaces = {"matchLabels": {ORG: format_label_value(org)}}
        yield from _build_rules("from", [{"namespaceSelector": namespaces, "podSelector": _ANY_WORKLOAD}], http)
    if internal.inbound_allow_type != "workload-list":
        return
    listed = sorted({_parse_link(link, gvc) for link in internal.inbound_allow_workload})
    own = [{"podSelector": {"matchLabels": select_pods(name)}} for other, name in listed if other == gvc]
    yield from _build_rules("from", own, ports)
    others = [_select_workload(org, other, name) for other, name in listed if other != gvc]
    yield from _build_rules("from", others, http)


def _list_outbound(inputs: WorkloadInputs) -> Iterator[dict[str, Any]]:
    """What a workload reaches: whatever workloads of its org allow, and the addresses of its firewall."""
    org = {"matchLabels": {ORG: format_label_value(inputs.template.env_context.org)}}
    yield {"to": [{"namespaceSelector": org, "podSelector": _ANY_WORKLOAD}]}
    features, options = inputs.features, inputs.options
    if features.knative and options.gateway_namespace:
        # Workloads of Knative are reached through its gateway.
        yield {"to": [{"namespaceSelector": _select_namespaces((options.gateway_namespace,))}]}
    external = inputs.template.desired.firewall.external
    blocks = _build_blocks(external.outbound_allow_cidr, external.outbound_blocked_cidr, inputs.options)
    if blocks:
        yield {"to": blocks}


def _build_rules(side: str, peers: list[dict[str, Any]], ports: list[int]) -> Iterator[dict[str, Any]]:
    """A rule for ``peers`` at ``ports``; none without both, since an empty list would stand for all."""
    if peers and ports:
        yield {side: peers, "ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _build_blocks(allowed: Iterable[str], blocked: Iterable[str], options: ClusterOptions) -> list[dict[str, Any]]:
    """The ranges ``allowed``, without ``blocked``, the cluster's own, and addresses with the credentials of nodes."""
    ranges = _compute_ranges(tuple(allowed), (*blocked, *options.cluster_networks))
    return [{"ipBlock": drop_empty({"cidr": cidr, "except": list(excepted)})} for cidr, excepted in ranges]


@lru_cache(1024)
def _compute_ranges(
    allowed: tuple[str, ...], refused_ranges: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Ranges with those inside of them that are refused; many workloads have the same."""
    refused = [ip_network(text, strict=False) for text in (*refused_ranges, *_LINK_LOCAL)]
    refused += [ip_network(str(address)) for address in METADATA]
    ranges = []
    for network in sorted({ip_network(text, strict=False) for text in allowed}, key=_sort_key):
        if any(_has_inside(other, network) for other in refused):
            continue
        inside = sorted({other for other in refused if _has_inside(network, other)}, key=_sort_key)
        excepted = [
            str(other) for other in inside if not any(_has_inside(one, other) for one in inside if one != other)
        ]
        ranges.append((str(network), tuple(excepted)))
    return tuple(ranges)


def _has_inside(outer: Network, inner: Network) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, IPv6Network) and inner.subnet_of(outer)


def _sort_key(network: Network) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen


def _select_namespaces(names: Iterable[str]) -> dict[str, Any]:
    chosen = sorted(names)
    if len(chosen) == 1:
        return {"matchLabels": {_NAMESPACE: chosen[0]}}
    return {"matchExpressions": [{"key": _NAMESPACE, "operator": "In", "values": chosen}]}


def _select_workload(org: str, gvc: str, name: str) -> dict[str, Any]:
    namespaces = {"matchLabels": {ORG: format_label_value(org), GVC: format_label_value(gvc)}}
    return {"namespaceSelector": namespaces, "podSelector": {"matchLabels": select_pods(name)}}


def _parse_link(link: str, own_gvc: str) -> tuple[str, str]:
    """The GVC and the name in the link of a workload in normal form: ``/org/ORG/gvc/GVC/workload/NAME``."""
    gvc, _, name = link.rpartition("/gvc/")[2].rpartition("/workload/")
    return gvc or own_gvc, name
