"""Compares the live state of HAProxy with what is wanted: from the output of ``show stat`` to commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import HOLDS, SELF, Backend, Server, add_server, backend_name
from reconciler.engines.host.dataplane.protocol import Traffic

_READY = ("UP", "no check")
_COLUMNS = ("pxname", "svname", "scur", "slim", "stot", "bout", "dreq", "status", "addr")
_ENTRY = re.compile(r"^0x[0-9a-f]+ (\S+) (\d+)$", re.MULTILINE)
_FRONTEND, _BACKEND = "FRONTEND", "BACKEND"


class LiveServer(NamedTuple):
    """A server of the live process. ``proven``: it has answered once, and may get any number of requests."""

    address: str
    limit: int
    open: int
    ready: bool
    ends: bool
    proven: bool


class LiveBackend(NamedTuple):
    """The counts of a workload: requests so far and now, those that no replica has yet, and refused ones so far."""

    arrived: int
    open: int
    refused: int
    servers: dict[str, LiveServer]

    @property
    def replicas(self) -> list[LiveServer]:
        """The servers that are replicas."""
        return [each for name, each in self.servers.items() if name != SELF]

    @property
    def active(self) -> int:
        """The requests that replicas work on."""
        return sum(each.open for each in self.servers.values())

    @property
    def traffic(self) -> Traffic:
        """The counts for autoscaling."""
        return Traffic(self.arrived, self.active, max(self.open - self.active, 0))


def read_live(text: str) -> dict[str, LiveBackend]:
    """The backends in the output of ``show stat``, by name. Raises ValueError if it is of another form."""
    lines = text.splitlines()
    head = next((line for line in lines if line.startswith("# ")), "")
    names = head[2:].split(",")
    at = [names.index(name) for name in _COLUMNS]
    backends: dict[str, list[str]] = {}
    servers: dict[str, dict[str, LiveServer]] = {}
    for line in lines:
        fields = line.split(",")
        if line.startswith("# ") or len(fields) < len(names):
            continue
        row = [fields[each] for each in at]
        if row[1] == _BACKEND:
            backends[row[0]] = row
        elif row[1] != _FRONTEND:
            servers.setdefault(row[0], {})[row[1]] = _live_server(row)
    return {
        name: LiveBackend(_number(row[4]), _number(row[2]), _number(row[6]), servers.get(name, {}))
        for name, row in backends.items()
    }


def read_holds(text: str) -> dict[str, int]:
    """The entries in the output of ``show map``: held backends, each with the end of its hold."""
    return {name: int(end) for name, end in _ENTRY.findall(text)}


def commands(wanted: Iterable[Backend], live: Mapping[str, LiveBackend]) -> Iterator[str]:
    """What brings the servers of ``live`` to what is wanted. Servers come before others leave.

    A server that is not wanted gets no new requests at once; it is removed when its last one has ended. Backends that
    the live process does not have need a reload.
    """
    for backend in wanted:
        name = backend_name(backend.service.key)
        found = live[name].servers if name in live else None
        if found is not None:
            for each in backend.servers:
                yield from _bring(f"{name}/{each.name}", backend, each, found.get(each.name))
            names = {SELF, *(each.name for each in backend.servers)}
            for other in sorted(found.keys() - names):
                yield from _take_out(f"{name}/{other}", found[other])


def hold_commands(wanted: Mapping[str, int], live: Mapping[str, int]) -> Iterator[str]:
    """What brings the map of held backends, each with the end of its hold, to what is wanted."""
    for name in sorted(live.keys() - wanted.keys()):
        yield f"del map ./{HOLDS} {name}"
    for name, end in sorted(wanted.items()):
        if live.get(name) != end:
            yield f"{'set' if name in live else 'add'} map ./{HOLDS} {name} {end}"


def _bring(path: str, backend: Backend, wanted: Server, live: LiveServer | None) -> Iterator[str]:
    if live is None:
        yield f"add server {path} {add_server(backend, wanted)}"
    else:
        if live.address != wanted.address:
            host, _, port = wanted.address.rpartition(":")
            yield f"set server {path} addr {host} port {port}"
        if live.limit != wanted.limit:
            yield f"set maxconn server {path} {wanted.limit}"
    if live is None or not live.ready:
        yield f"set server {path} state ready"


def _take_out(path: str, live: LiveServer) -> Iterator[str]:
    if not live.ends and live.open:
        yield f"set server {path} state drain"
    elif not live.open:
        yield f"set server {path} state maint"
        yield f"del server {path}"


def _live_server(row: list[str]) -> LiveServer:
    status, limit = row[7], _number(row[3])
    return LiveServer(
        address=row[8],
        limit=limit,
        open=_number(row[2]),
        ready=status in _READY,
        ends=status.startswith(("DRAIN", "MAINT")),
        # Only a server that had proven itself is without a limit.
        proven=not limit or _number(row[5]) > 0,
    )


def _number(text: str) -> int:
    return int(text) if text else 0
