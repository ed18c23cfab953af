"""What the configuration of HAProxy consists of: names of files and backends, servers, and options."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

import msgspec

from reconciler.engines.host.dataplane.endpoints import ADDRESS, Endpoint
from reconciler.engines.host.dataplane.haproxy.program import OLDEST
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.key import Key, Kind
from reconciler.settings import HoldSettings

CONFIG, HOLDS, EMPTY, PORTS = "haproxy.cfg", "holds.map", "empty.map", "ports.map"
HOLD = "requests.lua"
"""The scripts; the configuration of a version before has others, in hold.lua, and may be loaded once more."""
MASTER_SOCKET, STATS_SOCKET, LOG_SOCKET, PID = "master.sock", "stats.sock", "log.sock", "haproxy.pid"
ALIVE_SOCKET = "alive.sock"
"""The files of one location; HAProxy works in their directory, since the path of a socket must be short."""

HTTP, TCP = "http", "tcp"
"""The modes of backends and of the ports that lead to them."""

SELF = "_self"
"""The server that is the address of the workload itself: no encoded name begins like this.

A worker that was replaced passes its last requests there, because it knows no new servers. Requests that an operator
holds go there, too: their backend has only one timeout of its queue, so they wait in that of one in `HOLD_QUEUES`.
"""

WAIT = "_wait"
"""The server in whose queue requests wait while no replica is ready: the address of the workload itself, too.

It takes one request at a time. That one arrives again, finds it occupied by itself, and waits with all others, without
a script or a timer. When a replica is ready, it takes any number for a moment: all arrive again, and reach the replica.
"""

OWN = frozenset({SELF, WAIT})
"""The servers that are no replicas."""

HOLD_QUEUES = {"_hold:http": HTTP, "_hold:h2": HTTP, "_hold:tcp": TCP}
"""The backends in whose queues requests wait until the end of an operator's hold, with their modes.

Each is for one protocol of replicas, and shared by all workloads.
"""
QUEUES = 8
"""The servers of each of them. Each has a queue, for the workloads whose ports leave the same rest."""

AGAIN = "127.0.0.2"
"""The address from which requests arrive again."""

PASSED = "127.0.0.3"
"""The address from which requests arrive that a backend has passed on to the address of its workload."""

QUEUE = f"maxconn 1 pool-max-conn 0 source {AGAIN}"
"""The words that make a server a queue."""

NO_REPLICA = "none"
"""The value of each backend without a ready replica in the map ``EMPTY``."""

CROWD = "_crowd"
"""A key of the same map, while there are so many connections that only few requests of each workload may wait."""

FULL = "_full"
"""A key of the same map, while there are so many connections that no workload gets more than its share."""

TUNNEL = "1h"
"""How long a connection without a message stays: a WebSocket, or one of a port with the protocol tcp."""

CONNECT = "2s"
SUSPENDED = "_suspended"
"""Where the ports and the names of suspended workloads lead to in the map ``PORTS``: no backend has this name."""

NO_ROUTE = "_none"
"""The backend that answers requests without a workload."""

BY_RULES = "-"
"""Stands for the backend of a host name whose rules decide."""

REQUEST_LINE = '"request %b %s %ST %Tw %Tc %Tr %HM %[var(txn.id)] %HPO"'
"""A line of the log: backend, server, status, the milliseconds in the queue, to connect and until the response, the
method, the id of the request ("-" where a replica responded), and the path, whose end is cut off if it is long.
"""

# Without "_", which begins a coded byte, and ":", which stands between names.
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
    def mode(self) -> str:
        """Its mode: requests, or connections only."""
        return mode_of(self.service)

    @property
    def splits_requests(self) -> bool:
        """Whether clients stay with their version; those of a tcp port do so by their connection."""
        return bool(self.split) and self.mode == HTTP


class Suspended(msgspec.Struct, frozen=True, order=True):
    """A suspended workload at a port of this host, where HAProxy answers instead of it; ``name`` is its backend's."""

    name: str
    port: int


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Numbers of connections from clients, so that those of one workload never take the place of all others.

    With more than ``crowd`` at all workloads, few requests of each may wait. No workload ever has more than ``most``,
    and none gets more than ``share`` while there are more than ``full`` at all workloads.
    """

    crowd: int = 10_922
    most: int = 16_384
    full: int = 24_576
    share: int = 4096


def connection_limits(files: int) -> ConnectionLimits:
    """The limits of a process that may open so many files: a connection from a client needs two of them.

    A request that waits has one file, and then up to three more.
    """
    connections = files // 2
    return ConnectionLimits(files // 6, connections // 2, connections * 3 // 4, connections // 8)


class ProxyOptions(msgspec.Struct, frozen=True):
    """What all workloads of a location share. ``user`` is the number of HAProxy's user and group; None: the daemon's.

    Without ``lua``, requests cannot wait for an operator. ``runtime``: backends come and go without a reload.
    """

    location: str
    hold: HoldSettings = HoldSettings()
    threads: int = 1
    lua: bool = True
    user: tuple[int, int] | None = None
    runtime: bool = False
    version: tuple[int, int] = OLDEST
    limits: ConnectionLimits = ConnectionLimits()


def encode_name(text: str) -> str:
    """``text`` in letters, digits and hyphens, all else as ``_`` with two hexadecimal digits a byte."""
    return "".join(
        character if character in _WORDS else "".join(f"_{byte:02x}" for byte in character.encode())
        for character in text
    )


@lru_cache(maxsize=8192)
def backend_name(key: Key, port: int = 0) -> str:
    """The name of the backend of a workload's first port (0), or of another one."""
    return f"{encode_name(key.gvc)}:{encode_name(key.name)}{f':{port}' if port else ''}"


def decode_key(name: str) -> Key:
    """The workload of the backend ``name``."""
    gvc, workload, *_ = name.split(":")
    return Key(Kind.WORKLOAD, decode_name(gvc), decode_name(workload))


def decode_name(text: str) -> str:
    """What ``encode_name`` has made ``text`` of, such as the replica of a server."""
    head, *coded = text.split("_")
    whole = head.encode() + b"".join(bytes.fromhex(text[:2]) + text[2:].encode() for text in coded)
    return whole.decode()


def make_server(endpoint: Endpoint, port: int, limit: int) -> Server | None:
    """The server for a ready replica; None if it has no address for ``port``."""
    host, _, number = endpoint.ports.get(str(port), "").rpartition(":")
    try:
        address = f"{ip_address(host.strip('[]'))}:{int(number)}"
        return Server(encode_name(endpoint.name), address, limit, version=endpoint.version)
    except ValueError:
        return None


def add_server(backend: Backend, server: Server) -> str:
    """The words that define a server, in the file and for the command ``add server``."""
    limit = f" maxconn {server.limit}" if server.limit else ""
    weight = f" weight {server.weight}" if server.weight != 1 else ""
    return f"{server.address}{limit}{weight}{_format_protocol(backend.service)}"


def add_self(backend: Backend) -> str:
    """As ``add_server``, of the server that is the address of the workload itself."""
    return f"{ADDRESS}:{backend.port} weight 0 source {PASSED}{_format_protocol(backend.service)}"


def add_wait(backend: Backend) -> str:
    """As ``add_server``, of the server in whose queue requests wait."""
    return f"{ADDRESS}:{backend.port} backup {QUEUE}{_format_protocol(backend.service)}"


def mode_of(service: Service) -> str:
    """The mode of the backends of ``service``."""
    return TCP if service.protocol == "tcp" else HTTP


def _format_protocol(service: Service) -> str:
    return " proto h2" if service.protocol in ("http2", "grpc") else ""
