"""Converts ports of containers and their protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.kubernetes.services import ServicePort, other_transport, ports_of
from reconciler.convert.ports import PROTOCOLS_BY_NUMBER, PROTOCOLS_BY_WORD, is_usable
from reconciler.convert.tracked_value import TrackedValue

_BY_PROBE = {"httpGet": "http", "grpc": "grpc", "tcpSocket": "tcp"}


class ContainerPort(NamedTuple):
    """A port of a container: its number, its name ("" for none), and its protocol."""

    number: int
    name: str
    protocol: str


class Ports:
    """The ports of one workload, container by container; no number occurs twice.

    The first container also gets undeclared ports that Services target; ``protocol``, if set, applies to all.
    """

    def __init__(self, containers: Sequence[TrackedValue], services: Sequence[Item], protocol: str) -> None:
        self._protocol = protocol
        self._served = [port for service in services for port in ports_of(service)]
        for port in self._served:
            if port.protocol and not _parse_app_protocol(port.protocol):
                message = f"the protocol {port.protocol} is not known; it is chosen as where none is named"
                port.part["appProtocol"].add_note("convert-changed", message, "see --protocol")
        self._targeted = _by_target(self._served)
        declared = {number for container in containers for number in _list_port_numbers(container)}
        self._granted = [
            (port.part["targetPort"], port.target)
            for port in self._served
            if isinstance(port.target, int) and port.target and port.target not in declared
        ]
        self._taken: set[int] = set()

    def of(self, container: TrackedValue) -> list[ContainerPort]:
        """The ports of the next container."""
        granted, self._granted = self._granted, []
        declared = [*_list_declared_ports(container), *(_DeclaredPort(part, number, "") for part, number in granted)]
        ports = []
        for part, number, name in declared:
            if number in self._taken:
                part.add_note("convert-left-out", f"port {number} is already declared")
            elif is_usable(part, number):
                self._taken.add(number)
                protocol = self._protocol or _find_protocol(container, number, name, self._targeted)
                ports.append(ContainerPort(number, name, protocol))
        return ports


class _DeclaredPort(NamedTuple):
    """A port of a container, and the value with its number."""

    part: TrackedValue
    number: int
    name: str


def names_of(container: TrackedValue) -> dict[str, int]:
    """Name → number of the ports that ``container`` declares, including those that the platform refuses."""
    declared = [part for part in container["ports"].items() if part.peek("name")]
    return {part["name"].text(): part["containerPort"].number() or 0 for part in declared}


def _list_declared_ports(container: TrackedValue) -> Iterator[_DeclaredPort]:
    for part in container["ports"].items():
        if other_transport(part):
            continue
        number = part["containerPort"].number()
        if number is None:
            part.ignore()
            part.add_note("convert-malformed", "the field `containerPort` is missing")
        else:
            yield _DeclaredPort(part["containerPort"], number, part["name"].text())


def _list_port_numbers(container: TrackedValue) -> Iterator[int]:
    """Numbers of all ports that ``container`` declares."""
    for part in container["ports"].items():
        number = part["containerPort"].number()
        if number is not None:
            yield number


_Targeted = Mapping[int | str, Sequence[tuple[int, ServicePort]]]
"""Number or name of a port of containers → the ports of Services that lead there, with their places among all."""


def _by_target(served: Sequence[ServicePort]) -> _Targeted:
    targets: dict[int | str, list[tuple[int, ServicePort]]] = {}
    for index, port in enumerate(served):
        targets.setdefault(port.target, []).append((index, port))
    return targets


def _find_protocol(container: TrackedValue, number: int, name: str, by_target: _Targeted) -> str:
    """By appProtocol, the name's first word, the probe, the number (docs/platform/cli.md#what-becomes-of-a-field)."""
    leading = dict([*by_target.get(number, ()), *by_target.get(name, ())])
    targeted = [leading[index] for index in sorted(leading)]
    declared = (_parse_app_protocol(port.protocol) for port in targeted)
    named = (
        PROTOCOLS_BY_WORD.get(text.partition("-")[0].lower(), "") for text in (name, *(port.name for port in targeted))
    )
    probed = _list_probed_protocols(container, number, name)
    return next(filter(None, (*declared, *named, *probed)), "") or PROTOCOLS_BY_NUMBER.get(number, "tcp")


def _parse_app_protocol(protocol: str) -> str:
    """What is spoken where ``appProtocol`` says ``protocol``, "" where that is not known."""
    return PROTOCOLS_BY_WORD.get(protocol.rpartition("/")[2].lower(), "")


def _list_probed_protocols(container: TrackedValue, number: int, name: str) -> Iterator[str]:
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        for form, protocol in _BY_PROBE.items():
            asked = container.peek(probe)
            port = asked.get(form) if isinstance(asked, dict) else None
            if isinstance(port, dict) and port.get("port") in (number, name):
                yield "tcp" if port.get("scheme") == "HTTPS" else protocol
