"""Services of workloads: their address within the cluster, and the names of stateful replicas."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import (
    build_metadata,
    select_pods,
    stream_service_name,
    workload_name,
)
from reconciler.engines.kubernetes.rendering.quantities import drop_empty
from reconciler.model.kinds.workload import Specification

EVERYWHERE = "0.0.0.0/0"
_APP_PROTOCOLS = {"http": "http", "http2": "kubernetes.io/h2c", "grpc": "kubernetes.io/h2c"}
"""The protocol of a port → what it is called in a Service; tcp has no name there."""


def list_ports(spec: Specification) -> dict[int, str]:
    """The protocols of the declared ports by number, the first port first."""
    ports: dict[int, str] = {}
    for container in spec.containers:
        ports |= {port.number: port.protocol for port in container.ports}
        if container.port and not container.ports:
            ports[container.port] = "http2"
    return ports


def is_open(inputs: WorkloadInputs) -> bool:
    """Whether any address outside may send requests."""
    return EVERYWHERE in inputs.template.desired.firewall.external.inbound_ranges


def render_services(inputs: WorkloadInputs) -> list[KubeObject]:
    """The Service of a workload with ports.

    That of a stateful one has its name and no address of its own: it gives each replica the name
    ``{workload}-{index}.{workload}``.
    """
    ports = list_ports(inputs.template.spec)
    stateful = inputs.template.desired.stateful
    if not ports and not stateful:
        return []
    name = workload_name(inputs.owner.key.name)
    spec = drop_empty(
        {
            "type": "ClusterIP",
            "clusterIP": "None" if stateful else None,
            "selector": select_pods(inputs.owner.key.name),
            "ports": [_build_port(number, protocol) for number, protocol in ports.items()],
        }
    )
    metadata = build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}]


def render_stream_service(inputs: WorkloadInputs) -> list[KubeObject]:
    """The Service with an address outside for tcp ports of domains; none while nobody may connect.

    It shows the addresses of clients to the firewall, so only nodes with a replica take connections.
    """
    ranges, streams = inputs.template.desired.firewall.external.inbound_ranges, inputs.routes.streams
    if not ranges or not streams or inputs.template.desired.suspended:
        return []
    first = next(iter(list_ports(inputs.template.spec)))
    ports = [
        {
            "name": f"p{stream.number}",
            "port": stream.number,
            "protocol": "TCP",
            "targetPort": stream.target.port or first,
        }
        for stream in streams
    ]
    spec = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": [str(ip_network(text, strict=False)) for text in ranges],
        "selector": select_pods(inputs.owner.key.name),
        "ports": ports,
    }
    name = stream_service_name(inputs.owner.key.name)
    metadata = build_metadata(inputs.owner, inputs.template.env_context.org, inputs.namespace, name)
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}]


def _build_port(number: int, protocol: str) -> dict[str, Any]:
    return drop_empty(
        {
            "name": f"p{number}",
            "port": number,
            "protocol": "TCP",
            "targetPort": number,
            "appProtocol": _APP_PROTOCOLS.get(protocol),
        }
    )
