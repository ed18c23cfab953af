"""Reads Services and Ingresses: the selected workloads, their ports and protocols, and the permitted clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.tracked_value import TrackedValue

ANYWHERE = "0.0.0.0/0"
_OTHER_TRANSPORTS = ("UDP", "SCTP")


class ServicePort(NamedTuple):
    """A port of a Service: its number and name, the port of the container (number or name), and ``appProtocol``."""

    part: TrackedValue
    number: int
    name: str
    target: int | str
    protocol: str


class Services:
    """The Services of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._entered = {
            (item.namespace, backend.name) for item in bundle.of("Ingress") for backend in backends_of(item)
        }
        self._selected: set[tuple[str, str]] = set()
        self._selectors: dict[tuple[str, str, str], list[tuple[dict[str, str], Item]]] = {}
        for service in bundle.of("Service"):
            selector = service.spec["selector"].mapping()
            for name, value in list(selector.items())[:1]:
                self._selectors.setdefault((service.namespace, name, value), []).append((selector, service))

    def selecting(self, item: Item, labels: Mapping[str, str]) -> list[Item]:
        """The Services that select replicas with ``labels`` in the namespace of ``item``."""
        near = (self._selectors.get((item.namespace, name, value), ()) for name, value in labels.items())
        items = [service for pairs in near for selector, service in pairs if selector.items() <= labels.items()]
        self._selected.update((service.namespace, service.name) for service in items)
        return items

    def inbound(self, service: Item) -> list[str]:
        """CIDRs from which ``service`` accepts external requests; empty where it is internal."""
        ranges = service.spec["loadBalancerSourceRanges"] if service.spec["type"].text() == "LoadBalancer" else None
        if (service.namespace, service.name) in self._entered:
            if ranges:
                ranges.ignore()
                hint = "list the allowed addresses in firewallConfig.external.inboundAllowCIDR"
                ranges.add_note(
                    "convert-changed", "an Ingress leads here too, so any address may send requests", hint, True
                )
            return [ANYWHERE]
        return [] if ranges is None else ranges.texts() or [ANYWHERE]

    def finish(self) -> None:
        """Note Services that select nothing, and fields that are lost."""
        for service in self._bundle.of("Service"):
            spec = service.spec
            kind = spec["type"]
            if kind.text() == "ExternalName":
                kind.add_note(
                    "convert-left-out",
                    "a Service of type ExternalName has no counterpart",
                    "use the host's own name, and list it in outboundAllowHostname",
                )
                spec["externalName"].text()
            elif (service.namespace, service.name) not in self._selected:
                service.root["metadata"]["name"].add_note(
                    "convert-missing", f"{service} selects no workload of these files"
                )
            if kind.text() == "NodePort":
                kind.add_note(
                    "convert-left-out",
                    "ports of machines have no counterpart",
                    "list the allowed addresses in firewallConfig.external.inboundAllowCIDR",
                )
            ports_of(service)


class IngressBackend(NamedTuple):
    """A backend of an Ingress: a Service's name, and its port by number or name."""

    part: TrackedValue
    name: str
    port: int | str


def backends_of(ingress: Item) -> Iterator[IngressBackend]:
    """Every backend of ``ingress``, the default one first."""
    spec = ingress.spec
    for default in (spec["defaultBackend"], spec["backend"]):
        if default:
            yield backend_of(default)
    for rule in spec["rules"].items():
        for path in rule["http"]["paths"].items():
            yield backend_of(path["backend"])


def backend_of(part: TrackedValue) -> IngressBackend:
    """A backend in the format of networking.k8s.io/v1, or of earlier versions."""
    if part["serviceName"]:
        return IngressBackend(part, part["serviceName"].text(), get_port_reference(part["servicePort"]))
    service = part["service"]
    port = service["port"]
    return IngressBackend(part, service["name"].text(), get_port_reference(port["number"]) or port["name"].text())


def ports_of(service: Item) -> list[ServicePort]:
    """The TCP ports of ``service``, with notes on the others."""
    return [_make_service_port(part) for part in service.spec["ports"].items() if not other_transport(part)]


def other_transport(part: TrackedValue) -> bool:
    """Whether a port uses another protocol than TCP, with a note if so."""
    transport = part["protocol"]
    if transport.text("TCP") not in _OTHER_TRANSPORTS:
        return False
    transport.add_note("convert-left-out", f"{transport.text()} ports have no counterpart; the port is left out")
    part.ignore()
    return True


def get_port_reference(part: TrackedValue) -> int | str:
    """A port by number or by name; 0 where it is not set."""
    if isinstance(part.value, str):
        return int(part.value) if part.value.isdigit() and len(part.value) <= 5 else part.value
    return part.number() or 0


def _make_service_port(part: TrackedValue) -> ServicePort:
    number = part["port"].number() or 0
    return ServicePort(
        part, number, part["name"].text(), get_port_reference(part["targetPort"]) or number, part["appProtocol"].text()
    )
