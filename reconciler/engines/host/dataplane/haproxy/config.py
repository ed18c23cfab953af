"""Renders the configuration of HAProxy: pure functions from what is served to the text of its file.

No text of a manifest gets into it as it is: names are encoded, the entries of the tag `reconciler/no-wake` are quoted,
and all else is a number or a word from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from ipaddress import ip_address
from string import Template

import msgspec

from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.haproxy.outside import COUNTED, no_wake_lines, outside_lines
from reconciler.engines.host.dataplane.haproxy.pages import MESSAGES, error_page
from reconciler.engines.host.dataplane.haproxy.retries import retry_words
from reconciler.engines.host.dataplane.haproxy.split import comment, cookie_name, read_splits, split_lines
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.key import Key, Kind
from reconciler.settings import HoldSettings

CONFIG, HOLD, HOLDS = "haproxy.cfg", "hold.lua", "holds.map"
MASTER_SOCKET, STATS_SOCKET, LOG_SOCKET, PID = "master.sock", "stats.sock", "log.sock", "haproxy.pid"
"""The files of one location; HAProxy works in their directory, since the path of a socket must be short."""

SELF = "_self"
"""The server that is the address of the workload itself: no encoded name begins like this.

A worker that was replaced passes its last requests there, because it knows no new servers.
"""

TUNNEL = "1h"
"""How long a connection without a message stays: a WebSocket, or one of a port with the protocol tcp."""

CONNECT = "2s"
MAX_RELOADS = 20
"""A worker that still has connections after so many reloads is ended."""
FILES = 65_536

REQUEST_LINE = '"request %b %s %ST %Tw %Tc %Tr %HM %[var(txn.id)] %HPO"'
"""A line of the log: backend, server, status, the milliseconds in the queue, to connect and until the response, the
method, the id of the request ("-" where a replica responded), and the path, whose end is cut off if it is long.
"""

MEASURED = "  http-response set-log-level info"
"""Log a request to which a replica responded too."""

_STILL = "if { nbsrv eq 0 } !{ stopping }"
"""No replica is ready, and this worker would know one."""

_TEMPLATE = Template(files(__package__).joinpath("shared.cfg").read_text(encoding="utf-8"))
_FRONTEND = re.compile(r"^frontend (\S+):in from .*\n  bind \S+:(\d+)$", re.MULTILINE)
_WORDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class Server(msgspec.Struct, frozen=True, order=True):
    """A replica: its encoded name, ``host:port``, and how many requests it gets at once (0: any number).

    ``version`` is 0 for one that is only known from the live process.
    """

    name: str
    address: str
    limit: int = 0
    weight: int = 1
    version: int = 0


class Backend(msgspec.Struct, frozen=True):
    """A workload at a port of this host, with the replicas that get its requests.

    ``declared`` is the port of the workload that it leads to; 0: its first one. ``split`` are versions with the percent
    of requests that each gets.
    """

    service: Service
    port: int
    servers: tuple[Server, ...] = ()
    declared: int = 0
    split: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return backend_name(self.service.key, self.declared)

    @property
    def splits_requests(self) -> bool:
        """Whether clients stay with their version; those of a tcp port do so by their connection."""
        return bool(self.split) and self.service.protocol != "tcp"


class ProxyOptions(msgspec.Struct, frozen=True):
    """What all workloads of a location share. ``user`` is the number of HAProxy's user and group; None: the daemon's.

    Without ``lua``, requests cannot wait for the first replica.
    """

    location: str
    hold: HoldSettings = HoldSettings()
    threads: int = 1
    lua: bool = True
    user: tuple[int, int] | None = None


def encode(text: str) -> str:
    """``text`` in letters, digits and hyphens, all else as ``_`` with two hexadecimal digits a byte."""
    return "".join(each if each in _WORDS else "".join(f"_{byte:02x}" for byte in each.encode()) for each in text)


@lru_cache(maxsize=8192)
def backend_name(key: Key, port: int = 0) -> str:
    """The name of the backend of a workload's first port (0), or of another one."""
    return f"{encode(key.gvc)}:{encode(key.name)}{f':{port}' if port else ''}"


def decode_key(name: str) -> Key:
    """The workload of the backend ``name``."""
    gvc, workload, *_ = name.split(":")
    return Key(Kind.WORKLOAD, _decode(gvc), _decode(workload))


def decode_name(name: str) -> str:
    """The replica of the server ``name``."""
    return _decode(name)


def server(endpoint: Endpoint, port: int, limit: int) -> Server | None:
    """The server for a ready replica; None if it has no address for ``port``."""
    host, _, number = endpoint.ports.get(str(port), "").rpartition(":")
    try:
        address = f"{ip_address(host.strip('[]'))}:{int(number)}"
        return Server(encode(endpoint.name), address, limit, version=endpoint.version)
    except ValueError:
        return None


def render(options: ProxyOptions, backends: Iterable[Backend], frontends: str = "") -> str:
    """The whole file. The same input gives the same text, in any order of ``backends``.

    ``frontends`` are the sections that take requests from outside.
    """
    ordered = sorted(backends, key=_order)
    sections = [_sections(options, each, servers=True) for each in ordered]
    return _shared(options, structure(options, ordered, frontends)) + "".join(sections) + frontends


def structure(options: ProxyOptions, backends: Iterable[Backend], frontends: str = "") -> str:
    """A digest of all that only a reload can change: everything but the servers. The live process shows it."""
    ordered = sorted(backends, key=_order)
    parts = [_shared(options, ""), *(_sections(options, each, servers=False) for each in ordered), frontends]
    return blake2b("".join(parts).encode(), digest_size=12).hexdigest()


def _order(backend: Backend) -> tuple[Key, int]:
    return backend.service.key, backend.declared


def add_server(backend: Backend, each: Server) -> str:
    """The words that define a server, in the file and for the command ``add server``."""
    limit = f" maxconn {each.limit}" if each.limit else ""
    weight = f" weight {each.weight}" if each.weight != 1 else ""
    return f"{each.address}{limit}{weight}{_protocol(backend.service)}"


def read_ports(config: str) -> dict[Key, int]:
    """The ports of the workloads in a file that ``render`` made."""
    return {decode_key(name): int(port) for name, port in _FRONTEND.findall(config)}


def read_percents(config: str) -> dict[Key, dict[int, int]]:
    """The splits by version in a file that ``render`` made."""
    return {decode_key(name): percents for name, percents in read_splits(config).items()}


def _shared(options: ProxyOptions, digest: str) -> str:
    """All that is before the first workload: the file shared.cfg with the options."""
    hold = options.hold
    wait, still = _wait(hold), _STILL
    values: dict[str, object] = {
        "digest": digest,
        "stats_socket": STATS_SOCKET,
        "log_socket": LOG_SOCKET,
        "threads": options.threads,
        "files": FILES,
        "reloads": MAX_RELOADS,
        "user": "  uid {}\n  gid {}".format(*options.user) if options.user else "",
        "load": f"  lua-load ./{HOLD}",
        "counted": COUNTED,
        "line": REQUEST_LINE,
        "pages": "\n".join(map(error_page, MESSAGES)),
        "connect": CONNECT,
        "tunnel": TUNNEL,
        "queue": round(1000 * hold.seconds),
        "inspect": round(1000 * hold.seconds) + 1000,
        "requests": hold.requests,
        "most_queued": max(hold.requests, 1),
        "wait": "\n".join(_hold_lines(options)),
        "hold_connection": f"  tcp-request content {wait}\n  tcp-request content reject {still}",
    }
    if not options.lua:
        values |= dict.fromkeys(("load", "hold_connection"), "")
    text = _TEMPLATE.substitute(values)
    return "".join(f"{line}\n" for line in text.splitlines() if line)


def _wait(hold: HoldSettings) -> str:
    return f"lua.hold {hold.seconds:g} {_STILL} or !{{ stopping }} {{ be_name,map_str(./{HOLDS}) -m found }}"


def _hold_lines(options: ProxyOptions) -> list[str]:
    """Let requests wait for a replica, within limits."""
    hold = options.hold
    lines = [
        "  # The current request counts too. While a replica is ready, only those that wait for a free place count.",
        f"  http-request deny deny_status 503 {_STILL} {{ be_conn gt {hold.requests} }}",
        f"  http-request deny deny_status 503 if {{ queue ge {max(hold.requests, 1)} }}",
    ]
    wait = [f"  http-request {_wait(hold)}", f"  http-request deny deny_status 503 {_STILL}"]
    return [*lines, *(wait if options.lua else [])]


@lru_cache(maxsize=8192)
def _sections(options: ProxyOptions, backend: Backend, *, servers: bool) -> str:
    service, name = backend.service, backend.name
    mode = "tcp" if service.protocol == "tcp" else "http"
    outside = service.outside if mode == "http" else None
    seconds = service.timeout_seconds
    lines = [
        f"frontend {name}:{'to' if backend.declared else 'in'} from {mode}-frontend",
        f"  bind {ADDRESS}:{backend.port}",
        *([f"  timeout client {max(seconds, 60)}s"] if mode == "http" else []),
        *([MEASURED] if service.measures_latency and mode == "http" else []),
        *(no_wake_lines(service.no_wake, (name,), counted=service.scales_by_requests) if mode == "http" else []),
        f"  default_backend {name}",
        f"backend {name} from {mode}-backend{'-outside' if outside is not None else ''}",
        *([comment(backend.split)] if backend.split and servers else []),
        # The least connections would give idle servers the same number, whatever their weights.
        *(["  balance roundrobin"] if backend.split else []),
        *(outside_lines(outside) if outside is not None else ()),
        *(_hold_lines(options) if outside is not None else ()),
        *(_of_requests(options, service) if mode == "http" else ["  retries 2"]),
        *(split_lines(name, cookie_name(backend_name(service.key))) if backend.splits_requests else ()),
        f"  use-server {SELF} if {{ stopping }}",
        *(["  use-server %[var(txn.server)] if { var(txn.server) -m found }"] if backend.splits_requests else []),
        f"  server {SELF} {ADDRESS}:{backend.port} weight 0{_protocol(service)}",
        *(f"  server {each.name} {add_server(backend, each)}" for each in (sorted(backend.servers) if servers else ())),
        "",
    ]
    return "\n".join(lines)


def _of_requests(options: ProxyOptions, service: Service) -> list[str]:
    words = retry_words(service)
    lines = [f"  timeout server {service.timeout_seconds}s", f"  retries {service.retries if words else 0}"]
    if words:
        lines.append(f"  retry-on {' '.join(words)}")
    if service.debug:
        shown = f"if {{ var(txn.debug) -m bool }} !{{ srv_name {SELF} }}"
        lines += [
            "  http-request set-var(txn.debug) bool(true) if { req.hdr(x-platform-debug) -m str true }",
            f"  http-response set-header x-platform-location {encode(options.location)} {shown}",
            f"  http-response set-header x-platform-replica %s {shown}",
        ]
    return lines


def _protocol(service: Service) -> str:
    return " proto h2" if service.protocol in ("http2", "grpc") else ""


def _decode(text: str) -> str:
    head, *coded = text.split("_")
    whole = head.encode() + b"".join(bytes.fromhex(each[:2]) + each[2:].encode() for each in coded)
    return whole.decode()
