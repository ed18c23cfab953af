"""Ports of services: those that they publish and expose, and those at which others address them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.convert.compose.long_forms import MOST_PORTS, too_many
from reconciler.convert.compose.values import Field
from reconciler.convert.ports import PROTOCOLS_BY_NUMBER, PROTOCOLS_BY_WORD, is_usable

_ADDRESS = re.compile(
    r"(?<![-.+\w])(?:(?P<scheme>[a-z][-+.a-z0-9]{0,20})://(?:[^\s/@]{0,200}@)?)?"
    r"(?P<name>[a-zA-Z0-9][-_.a-zA-Z0-9]{0,62}):(?P<port>[0-9]{2,5})(?![-.\w@:])"
)
"""A host with a port, in a URL or alone. Digits before an @ are a password."""
_ITSELF = frozenset({"localhost", "127.0.0.1", "0.0.0.0"})
_MOST = 65535
_LOOPBACK = ("127.", "::1")
_USUAL = {
    "clickhouse": 8123,
    "elasticsearch": 9200,
    "etcd": 2379,
    "influxdb": 8086,
    "kafka": 9092,
    "mailhog": 1025,
    "mariadb": 3306,
    "memcached": 11211,
    "mongo": 27017,
    "mongodb": 27017,
    "mosquitto": 1883,
    "mysql": 3306,
    "nats": 4222,
    "neo4j": 7687,
    "opensearch": 9200,
    "postgis": 5432,
    "postgres": 5432,
    "postgresql": 5432,
    "pgvector": 5432,
    "rabbitmq": 5672,
    "redis": 6379,
    "timescaledb": 5432,
    "valkey": 6379,
    "zookeeper": 2181,
}
"""Name of an image → the port that it serves. A compose file need not name it: its networks have all ports."""


class ComposePort(NamedTuple):
    """A port of a container, and whether it is open to all addresses."""

    number: int
    protocol: str
    is_open: bool


class Addresses:
    """The ports at which services address one another, and what they speak there."""

    def __init__(self, services: Mapping[str, Any]) -> None:
        self._ports: dict[str, dict[int, None]] = {name: {} for name in services}
        self._protocols: dict[tuple[str, int], str] = {}
        for name, service in services.items():
            for text in _list_address_texts(service):
                self._add(name, text)

    def ports(self, service: str) -> Iterable[int]:
        """The ports at which other services address ``service``."""
        return self._ports[service]

    def protocol(self, service: str, port: int) -> str:
        """What a URL says is spoken there, else what is usual; tcp where nothing is known."""
        return self._protocols.get((service, port)) or PROTOCOLS_BY_NUMBER.get(port, "tcp")

    def _add(self, user: str, text: str) -> None:
        for match in _ADDRESS.finditer(text):
            is_own = match["name"] in _ITSELF
            name, port = user if is_own else match["name"], int(match["port"])
            if name not in self._ports or port > _MOST:
                continue
            if name != user:
                self._ports[name][port] = None
            if protocol := PROTOCOLS_BY_WORD.get(match["scheme"] or "", ""):
                self._protocols.setdefault((name, port), protocol)


class _Wanted(NamedTuple):
    """A port at the value that asks for it; ``published`` is the address of the machine, None if it is exposed only."""

    part: Field
    number: int
    published: str | None
    protocol: str = ""


def ports_of(name: str, service: Field, addresses: Addresses) -> list[ComposePort]:
    """The ports of the service ``name``, with notes on those that it cannot have. The endpoint leads to the first."""
    requests: dict[int, _Wanted] = {}
    for request in (*_list_published_ports(service), *_list_exposed_ports(service)):
        if request.number in requests:
            request.part.add_note("convert-left-out", f"port {request.number} is already declared", on_key=True)
        elif is_usable(request.part, request.number):
            requests[request.number] = request
    for number in addresses.ports(name):
        if number not in requests and is_usable(service, number):
            _note_added(service, number, "other services address it")
            requests[number] = _Wanted(service, number, None)
    if not requests and (usual := _find_usual_port(service)):
        _note_added(service, usual, "images of this name serve it")
        requests[usual] = _Wanted(service, usual, None)
    ports = [
        _make_port(request, request.protocol or addresses.protocol(name, request.number))
        for request in requests.values()
    ]
    ports.sort(key=lambda port: not port.is_open)
    _note_published(ports, requests)
    return ports


def _make_port(request: _Wanted, protocol: str) -> ComposePort:
    is_local = request.published is None or request.published.startswith(_LOOPBACK)
    return ComposePort(request.number, protocol, is_open=not is_local and protocol != "tcp")


def _note_published(ports: Sequence[ComposePort], requests: Mapping[int, _Wanted]) -> None:
    """Note what takes the place of each port of the machine."""
    for index, port in enumerate(ports):
        part, _, address, _ = requests[port.number]
        if address is None:
            continue
        if address.startswith(_LOOPBACK):
            message = f"port {port.number} is for the machine alone, so it is not open"
        elif port.is_open and not index:
            message = f"port {port.number} is reached by the endpoint of the workload"
        elif port.is_open:
            message = f"port {port.number} is reached from outside by a domain with a route to it"
        else:
            message = f"port {port.number} is reached from outside by a domain, with dedicated load balancing"
        (part["published"] or part).add_note("compose-published", message)


def _list_published_ports(service: Field) -> Iterator[_Wanted]:
    for part in service["ports"].items():
        number = part["target"].number()
        if part["protocol"].text("tcp").lower() != "tcp":
            part.ignore()
            part.add_note("convert-left-out", "only TCP reaches workloads; the port is left out")
        elif number is None:
            part.ignore()
            part.add_note("convert-malformed", "the field `target` is missing")
        else:
            address = part["host_ip"].text()
            if address and not address.startswith(_LOOPBACK):
                part["host_ip"].add_note("convert-left-out", "workloads have no addresses of the machine", on_key=True)
            word = PROTOCOLS_BY_WORD.get(part["app_protocol"].text().lower(), "")
            yield _Wanted(part, number, address, word)


def _list_exposed_ports(service: Field) -> Iterator[_Wanted]:
    for part in service["expose"].items():
        text, _, protocol = part.text().partition("/")
        first, _, last = text.partition("-")
        if protocol not in ("", "tcp"):
            part.add_note("convert-left-out", "only TCP reaches workloads; the port is left out")
        elif not first.isdecimal() or len(text) > 11 or not (last or first).isdecimal():
            part.add_note("convert-malformed", "an entry of `expose` is not a port")
        elif (count := int(last or first) - int(first) + 1) > MOST_PORTS:
            part.add_note("convert-left-out", *too_many(count))
        else:
            yield from (_Wanted(part, number, None) for number in range(int(first), int(first) + count))


def has_port(name: str, service: Field, addresses: Addresses) -> bool:
    """Whether the service ``name`` names a port, is addressed at one, or has an image that serves one."""
    return bool(service.peek("ports") or service.peek("expose") or addresses.ports(name) or _find_usual_port(service))


def _find_usual_port(service: Field) -> int:
    """The port that an image of a well-known name serves; 0 for others."""
    image = service.peek("image")
    return _USUAL.get(image.rpartition("/")[2].partition("@")[0].partition(":")[0], 0) if isinstance(image, str) else 0


def _note_added(service: Field, number: int, reason: str) -> None:
    service.add_note("compose-port", f"port {number} is declared, since {reason}", "expose names ports", on_key=True)


def _list_address_texts(service: Any) -> Iterator[str]:
    """The texts of a service that may have addresses."""
    fields = service if isinstance(service, dict) else {}
    waiting = [fields.get(name) for name in ("environment", "command", "entrypoint", "healthcheck")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
