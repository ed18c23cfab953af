"""Renders the configuration of HAProxy: pure functions from what is served to the text of its file.

No text of a manifest gets into it as it is: names are encoded, the entries of the tag `reconciler/no-wake` are quoted,
and all else is a number or a word from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from string import Template
from typing import NamedTuple

import msgspec

from reconciler.engines.host.dataplane.endpoints import ADDRESS
from reconciler.engines.host.dataplane.haproxy.config import (
    AGAIN,
    ALIVE_SOCKET,
    BY_RULES,
    CONNECT,
    HOLD,
    HOLD_QUEUES,
    HOLDS,
    HTTP,
    LOG_SOCKET,
    NO_ROUTE,
    PASSED,
    PORTS,
    QUEUE,
    QUEUES,
    REQUEST_LINE,
    SELF,
    STATS_SOCKET,
    SUSPENDED,
    TCP,
    TUNNEL,
    WAIT,
    Backend,
    ProxyOptions,
    add_self,
    add_server,
    add_wait,
    backend_name,
)
from reconciler.engines.host.dataplane.haproxy.outside import COUNTED
from reconciler.engines.host.dataplane.haproxy.rendering.pages import error_pages, suspended_answer
from reconciler.engines.host.dataplane.haproxy.rendering.profiles import (
    AGAIN_SECONDS,
    connection_lines,
    hold_line,
    profile_of,
)
from reconciler.engines.host.dataplane.haproxy.split import cookie_name, split_lines
from reconciler.model.key import Key

MAX_RELOADS = 20
"""A worker that still has connections after so many reloads is ended."""
FILES = 65_536

_TEMPLATE, _QUEUES_TEMPLATE = (
    Template(files(__package__).joinpath(name).read_text(encoding="utf-8")) for name in ("shared.cfg", "hold.cfg")
)
_KNOWN_PORT = f"{{ dst_port,map_str(./{PORTS}) -m found }}"
_DIGEST = re.compile(r"^  description ([0-9a-f]+)$", re.MULTILINE)
_COUNT = re.compile(r"^# load (\d+)$", re.MULTILINE)
_BINDS = re.compile(r"^frontend _ports:(http|tcp) from .*\n((?:  bind .*\n)+)", re.MULTILINE)
_PORT = re.compile(r":(\d+)$", re.MULTILINE)
_PROFILE = re.compile(r"^defaults ((?:http|tcp)-[0-9a-f]{12})\n(?:  .*\n)+", re.MULTILINE)
_BACKEND = re.compile(
    rf"^backend (\S+) from (\S+)\n((?:  (?!server ).*\n)*)  server {SELF} (\S+:(\d+) .*)$", re.MULTILINE
)
"""A backend, its profile, lines of its own, and its own server with its port."""

_PASS_ON = f"  use-server {SELF} if {{ stopping }}\n"
_HOLD = f"  {hold_line()}\n"
_STEPS = (60, 600, 3600)
"""Seconds: few values, since only a reload changes the timeout of a frontend."""


class LoadedConfig(msgspec.Struct, frozen=True):
    """What HAProxy takes at a reload only: the ports that it listens at by mode, and the profiles by name.

    ``count`` makes two loads differ that are otherwise the same.
    """

    ports: Mapping[str, frozenset[int]] = {}
    profiles: Mapping[str, str] = {}
    count: int = 0


class Frontends(msgspec.Struct, frozen=True):
    """What takes requests: ``outside`` are the sections for those from outside, ``lines`` are for single workloads, and
    ``seconds`` is the longest timeout.
    """

    outside: str = ""
    lines: tuple[str, ...] = ()
    seconds: int = 0


class Shape(NamedTuple):
    """What no command changes in a backend: its profile, its own server, and lines of its own."""

    profile: str
    server: str
    lines: str = ""


class FileLayout(msgspec.Struct, frozen=True):
    """All of the file but its backends."""

    options: ProxyOptions
    loaded: LoadedConfig
    frontends: Frontends = Frontends()


def render_config(layout: FileLayout, backends: Iterable[Backend]) -> str:
    """The whole file. The same input gives the same text, in any order of ``backends``."""
    ordered = sorted(backends, key=_get_sort_key)
    sections = [_render_section(layout.options, backend, servers=True) for backend in ordered]
    return (
        _render_shared(layout, compute_structure_digest(layout, ordered)) + "".join(sections) + layout.frontends.outside
    )


def compute_structure_digest(layout: FileLayout, backends: Iterable[Backend]) -> str:
    """A digest of all that only a reload can change. The live process shows it.

    That is everything but the servers, and without backends where these come and go at run time.
    """
    parts = [_render_shared(layout, ""), layout.frontends.outside]
    if not layout.options.runtime:
        parts += (
            _render_section(layout.options, backend, servers=False) for backend in sorted(backends, key=_get_sort_key)
        )
    return blake2b("".join(parts).encode(), digest_size=12).hexdigest()


def read_loaded(config: str) -> LoadedConfig:
    """What a process has that started with the file ``config``."""
    count = _COUNT.search(config)
    ports = {mode: frozenset(map(int, _PORT.findall(binds))) for mode, binds in _BINDS.findall(config)}
    profiles = {match[1]: match[0] for match in _PROFILE.finditer(config)}
    return LoadedConfig(ports, profiles, int(count[1]) if count is not None else 0)


def read_digest(config: str) -> str:
    """The digest in the file ``config``."""
    match = _DIGEST.search(config)
    return match[1] if match is not None else ""


def read_shapes(config: str) -> dict[str, Shape]:
    """The shapes of the backends in a file that ``render_config`` made."""
    return {
        # Before HAProxy 3.4, all backends have these lines, and `shape_of` leaves them out.
        name: Shape(profile, server, lines.replace(_PASS_ON + _HOLD, "").replace(_PASS_ON, ""))
        for name, profile, lines, server, _ in _BACKEND.findall(config)
    }


def read_ports(config: str) -> dict[str, int]:
    """The ports of the backends in a file that ``render_config`` made."""
    return {name: int(port) for name, *_, port in _BACKEND.findall(config)}


def shape_of(options: ProxyOptions, backend: Backend) -> Shape:
    """The shape of ``backend``."""
    return Shape(profile_of(options, backend.service).name, add_self(backend), "".join(_own_lines(options, backend)))


def _own_lines(options: ProxyOptions, backend: Backend) -> Iterator[str]:
    """What a backend has beside its profile, which only a reload brings: a split by version names the backend."""
    if backend.mode == TCP:
        yield from (f"  {line}\n" for line in connection_lines(options))
    if options.runtime and options.lua and backend.service.hold_until:
        yield _HOLD
    if backend.split:
        # The least connections would give idle servers the same number, whatever their weights.
        yield "  balance roundrobin\n"
    if backend.splits_requests:
        cookie = cookie_name(backend_name(backend.service.key))
        yield from (f"{line}\n" for line in split_lines(backend.name, cookie))
        yield "  use-server %[var(txn.server)] if { var(txn.server) -m found }\n"


def client_seconds(seconds: int) -> int:
    """The timeout of clients for requests that take up to ``seconds``."""
    return next((number for number in _STEPS if number >= seconds), seconds)


def _get_sort_key(backend: Backend) -> tuple[Key, int]:
    return backend.service.key, backend.declared


def _render_shared(layout: FileLayout, digest: str) -> str:
    """All that is before the first workload: the file shared.cfg with the options, profiles and ports."""
    options, loaded = layout.options, layout.loaded
    values: dict[str, object] = {
        "digest": digest,
        "stats_socket": STATS_SOCKET,
        "log_socket": LOG_SOCKET,
        "alive_socket": ALIVE_SOCKET,
        "threads": options.threads,
        "files": FILES,
        "reloads": MAX_RELOADS,
        "user": "  uid {}\n  gid {}".format(*options.user) if options.user else "",
        "load": f"  lua-load ./{HOLD}" if options.lua else "",
        "counted": COUNTED,
        "line": REQUEST_LINE,
        "pages": "\n".join(error_pages()),
        "unserved_pages": "\n".join(error_pages(served=False)),
        "connect": CONNECT,
        "tunnel": TUNNEL,
        "no_route": NO_ROUTE,
        "suspended_answer": suspended_answer(),
        "ports": PORTS,
        "suspended": SUSPENDED,
        "by_rules": BY_RULES,
        "count": f"# load {loaded.count}",
    }
    text = "".join(f"{line}\n" for line in _TEMPLATE.substitute(values).splitlines() if line)
    text += "".join(_queue_sections()) if options.lua else ""
    profiles = (loaded.profiles[name] for name in sorted(loaded.profiles))
    return "".join([text, *profiles, *(_render_ports(layout, mode) for mode in (HTTP, TCP) if loaded.ports.get(mode))])


def _render_ports(layout: FileLayout, mode: str) -> str:
    """The frontend of all ports of this host in ``mode``. A map leads from a port to its backend."""
    lines = [
        f"frontend _ports:{mode} from {mode}-frontend",
        *(f"  bind {ADDRESS}:{port}" for port in sorted(layout.loaded.ports[mode])),
        # A spare port is open before it has a workload.
        f"  tcp-request connection reject if !{_KNOWN_PORT}",
        *(_http_lines(layout.frontends) if mode == HTTP else ()),
        *(_lead_to_queue(mode) if layout.options.lua else ()),
        f"  use_backend %[dst_port,map_str(./{PORTS})] if {_KNOWN_PORT}",
        *([f"  default_backend {NO_ROUTE}"] if mode == HTTP else ()),
        "",
    ]
    return "\n".join(lines)


def _lead_to_queue(mode: str) -> Iterator[str]:
    """Lead the requests that an operator holds to a queue for their protocol, once their backend has passed them on."""
    waits = f"{{ src {AGAIN} {PASSED} }} {{ dst_port,map_str(./{PORTS}),map_str(./{HOLDS}) -m found }}"
    if mode == TCP:
        yield f"  use_backend _hold:tcp if {waits}"
        return
    yield f"  use_backend _hold:h2 if {waits} {{ fc_http_major 2 }}"
    yield f"  use_backend _hold:http if {waits}"


def _queue_sections() -> Iterator[str]:
    """The backends with the queues of requests that an operator holds. Their servers are the address they came to."""
    yield _QUEUES_TEMPLATE.substitute(connect=CONNECT, again=AGAIN_SECONDS, tunnel=TUNNEL)
    for name, mode in HOLD_QUEUES.items():
        protocol = " proto h2" if name.endswith(":h2") else ""
        yield f"backend {name} from {mode}-hold\n"
        yield f"  use-server %[dst_port,mod({QUEUES})] if TRUE\n"
        yield from (f"  server {number} {ADDRESS} {QUEUE}{protocol}\n" for number in range(QUEUES))


def _http_lines(frontends: Frontends) -> Iterator[str]:
    yield f"  timeout client {client_seconds(frontends.seconds)}s"
    yield f"  http-request set-var(txn.backend) dst_port,map_str(./{PORTS})"
    yield from frontends.lines


@lru_cache(maxsize=8192)
def _render_section(options: ProxyOptions, backend: Backend, *, servers: bool) -> str:
    shape = shape_of(options, backend)
    lines = [
        f"backend {backend.name} from {shape.profile}\n",
        shape.lines,
        *([] if options.runtime else [_PASS_ON]),
        *([_HOLD] if options.lua and not options.runtime else []),
        f"  server {SELF} {shape.server}\n",
        f"  server {WAIT} {add_wait(backend)}\n",
        *(f"  server {server.name} {add_server(backend, server)}\n" for server in sorted(backend.servers) if servers),
    ]
    return "".join(lines)
