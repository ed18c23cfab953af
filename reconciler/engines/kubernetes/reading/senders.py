"""Which workload sends a request: its token is in a Secret on the cluster, and its pods have addresses there."""

from __future__ import annotations

import base64
import hmac
from ipaddress import IPv4Address, IPv6Address, ip_address

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import SECRET, ObjectId
from reconciler.engines.kubernetes.reading.pods import ClusterLocation, list_workload_pods
from reconciler.engines.kubernetes.rendering.names import TOKEN, WORKLOAD, format_label_value, token_secret_name
from reconciler.engines.kubernetes.status.fields import ObjectPart, read_field, read_items, read_mapping, read_text
from reconciler.model.key import Key


async def is_stored_token(api: KubeApi, location: ClusterLocation, key: Key, token: str) -> bool:
    """Whether ``token`` is in the Secret of the workload ``key``. Raises EngineError."""
    secret = await api.get(ObjectId(SECRET, location.namespace_of(key.gvc), token_secret_name(key.name)))
    if secret is None or not location.owns(secret):
        return False
    if read_mapping(secret, "metadata", "labels").get(WORKLOAD) != format_label_value(key.name):
        return False
    stored = read_text(secret, "data", TOKEN)
    encoded = base64.b64encode(token.encode("utf-8", "surrogatepass")).decode()
    return bool(stored) and hmac.compare_digest(stored, encoded)


async def has_address(api: KubeApi, location: ClusterLocation, key: Key, host: str) -> bool:
    """Whether ``host`` is the address of a running pod of the workload ``key``. Raises EngineError."""
    address = _parse_address(host)
    if address is None:
        return False
    pods = await list_workload_pods(api, location, key)
    return any(address in map(_parse_address, _list_addresses(pod.part)) for pod in pods)


def _list_addresses(pod: ObjectPart) -> list[str]:
    """The addresses that a pod has for itself: one that has ended has none, nor has one in the network of its node."""
    if read_text(pod, "status", "phase") != "Running" or read_field(pod, "spec", "hostNetwork") is True:
        return []
    return [read_text(pod, "status", "podIP"), *(read_text(item, "ip") for item in read_items(pod, "status", "podIPs"))]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
