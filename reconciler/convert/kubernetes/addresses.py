"""Notes the new address of a Service's workload, at the Service and in texts with its old address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.convert.kubernetes.bundle import WORKLOADS, Bundle, Item
from reconciler.convert.kubernetes.jobs import template_of
from reconciler.convert.kubernetes.services import ports_of
from reconciler.convert.kubernetes.workloads import Deployed
from reconciler.convert.tracked_value import TrackedValue

_ADDRESS = re.compile(
    r"(?P<scheme>://|@)?(?<![-.\w])(?P<name>[a-z][-a-z0-9]*)(?:\.(?P<namespace>[a-z0-9][-a-z0-9]*))?"
    r"(?P<cluster>\.svc(?:\.cluster\.local)?)?(?::(?P<port>[0-9]{2,5}))?(?![-.\w])"
)
"""A host name such as web, web.shop or web.shop.svc.cluster.local, with the context that makes it likely."""


_DEFAULTS = {"http": 80, "https": 443}
"""Default ports by URL scheme."""


class ServiceAddress(NamedTuple):
    """The internal name of a workload, and its port for each port of the Service."""

    host: str
    ports: Mapping[int, int]


Addresses = Mapping[tuple[str, str], ServiceAddress]
"""(namespace, name) of a Service → address of its workload."""


def note_addresses(bundle: Bundle, deployed: Iterable[Deployed]) -> None:
    """Note, on every Service and every text that names one, the name and port here."""
    addresses: dict[tuple[str, str], ServiceAddress] = {}
    for one in deployed:
        for service in one.services:
            if (service.namespace, service.name) not in addresses:
                addresses[service.namespace, service.name] = address = _build_address(service, one)
                changed = [f"{here} instead of {there}" for there, here in address.ports.items() if here != there]
                ports = f", on port {', '.join(changed)}" if changed else ""
                service.root["metadata"]["name"].add_note(
                    "convert-service-name", f"{service} is reached at {address.host} here{ports}"
                )
    for item in bundle.of(*WORKLOADS, "ConfigMap"):
        for part in _list_texts(item):
            mentions = dict.fromkeys(_find_service_addresses(part.text(), item.namespace, addresses))
            if mentions:
                part.add_note("convert-service-name", f"{', '.join(mentions)} here")


def _build_address(service: Item, deployed: Deployed) -> ServiceAddress:
    """The address behind ``service``, without ports that the workload does not have."""
    behind: dict[int | str, int] = {}
    for container_port in deployed.ports:
        behind.setdefault(container_port.number, container_port.number)
        behind.setdefault(container_port.name, container_port.number)
    ports = {port.number: behind[port.target] for port in ports_of(service) if port.target in behind}
    return ServiceAddress(f"{deployed.name}.{deployed.gvc}.platform.local", ports)


def _list_texts(item: Item) -> Iterator[TrackedValue]:
    """Values of ``item`` that may name a Service: texts, commands, arguments and plain variables."""
    if item.kind == "ConfigMap":
        yield from (part for _, part in item.root["data"].fields() if isinstance(part.value, str))
        return
    for container in template_of(item)["spec"]["containers"].items():
        yield from (part for field in ("command", "args") for part in container[field].items())
        yield from (variable["value"] for variable in container["env"].items() if variable["value"])


def _find_service_addresses(text: str, namespace: str, addresses: Addresses) -> Iterator[str]:
    """``web:80 is web.shop.platform.local:8080`` for every Service of ``addresses`` that ``text`` addresses."""
    for match in _ADDRESS.finditer(text):
        address = addresses.get((match["namespace"] or namespace, match["name"]))
        if address is None or not (match["scheme"] or match["cluster"] or match["port"]):
            continue
        port = int(match["port"] or 0)
        default = next((number for end, number in _DEFAULTS.items() if text.endswith(end, 0, match.start())), 0)
        number = address.ports.get(port or default, port)
        here = f":{number}" if number not in (0, default) else ""
        yield f"{match[0].removeprefix(match['scheme'] or '')} is {address.host}{here}"
