"""What the live HAProxy shows of itself, and the commands that bring it to what is desired: text in, commands out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import (
    EMPTY,
    HOLDS,
    NO_REPLICA,
    OWN,
    SELF,
    WAIT,
    Backend,
    ProxyOptions,
    Server,
    add_self,
    add_server,
    add_wait,
)
from reconciler.engines.host.dataplane.haproxy.outside import COUNTED
from reconciler.engines.host.dataplane.haproxy.rendering.render import LoadedConfig, shape_of
from reconciler.engines.host.dataplane.haproxy.split import SPLITS, backend_of, split_entries
from reconciler.engines.host.dataplane.protocol import Traffic
from reconciler.errors import EngineError
from reconciler.reasons import Reason

# `show proc` goes to the master: no worker knows the former ones.
SHOW_FACTS = (
    f"@1 show info;@1 show map ./{HOLDS};@1 show map ./{SPLITS};@1 show map ./{EMPTY};@1 show table {COUNTED};show proc"
)

UNLIMITED = 65_536
"""The limit of a server that may get any number of requests. With a limit of 0, HAProxy never continues those that wait
since the time of a lower limit.
"""

DEQUEUED = 200
"""So many requests leave a queue each time that a limit changes (`tune.maxpollevents`)."""
USUAL_TIMES = 8
"""The queue may be longer than it was when it was read."""

_UNPUBLISHED = "UNPUB"
_NO_BACKEND = "No such proxy."
_READY = ("UP", "no check")
_COLUMNS = ("pxname", "svname", "scur", "slim", "stot", "bout", "dreq", "status", "qcur", "econ", "weight", "addr")
"""All but the last one are among the first columns of the output; the last but one is the last of these."""
_FRONTEND, _BACKEND = "FRONTEND", "BACKEND"

_ENTRY = re.compile(r"^0x[0-9a-f]+ (\S+) (\S+)$", re.MULTILINE)
_COUNTED = re.compile(r"^0x[0-9a-f]+: key=(\S+) .*conn_cur=(\d+) http_req_cnt=(\d+)", re.MULTILINE)
_FORMER_WORKERS = "# old workers"
_WORKER = re.compile(r"^(\d+) +worker ", re.MULTILINE)


class Counted(NamedTuple):
    """The requests of a backend that count as traffic, where others do not: so far, and now."""

    arrived: int = 0
    open: int = 0


class Facts(NamedTuple):
    """What the live process shows of itself, beside its backends.

    ``digest`` is that of its structure, ``process`` its number, ``holds`` and ``splits`` are the entries of its maps,
    ``empty`` are the backends without a ready replica, and ``former`` the numbers of the workers that take no new
    connections, and still have some. A process that takes none itself shows no digest. ``connections`` are those that
    are open now.
    """

    digest: str = ""
    process: str = ""
    holds: Mapping[str, str] = {}
    splits: Mapping[str, str] = {}
    counted: Mapping[str, Counted] = {}
    former: tuple[str, ...] = ()
    connections: int = 0
    empty: Mapping[str, str] = {}

    @property
    def former_workers(self) -> int:
        """How many former workers there are."""
        return len(self.former)


def read_facts(text: str) -> Facts:
    """The facts in the output of ``SHOW_FACTS``."""
    info, pairs = dict(map(_split_line, text.splitlines())), _ENTRY.findall(text)
    empty = {name: value for name, value in pairs if value == NO_REPLICA}
    entries = {name: value for name, value in pairs if value != NO_REPLICA}
    # One output has all maps, so the form of a key shows which one it is from.
    holds = {name: end for name, end in entries.items() if backend_of(name) == name}
    splits = {name: value for name, value in entries.items() if name not in holds}
    digest = info.get("description", "") if info.get("stopping") != "1" else ""
    counts = _read_counted(text), _former_workers(text), int(info.get("currconns") or 0)
    return Facts(digest, info.get("pid", ""), holds, splits, *counts, empty)


def _split_line(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


def _read_counted(text: str) -> dict[str, Counted]:
    """The rows in the output of ``show table``."""
    return {name: Counted(int(arrived), int(active)) for name, active, arrived in _COUNTED.findall(text)}


def _former_workers(text: str) -> tuple[str, ...]:
    """The numbers of the workers that take no new connections in the output of ``show proc``.

    The master names them: /proc hides the processes of a HAProxy with more capabilities from the daemon.
    """
    _, _, rest = text.partition(_FORMER_WORKERS)
    return tuple(_WORKER.findall(rest.partition("\n#")[0]))


class LiveServer(NamedTuple):
    """A server of the live process. ``proven``: it has answered once, and may get any number of requests.

    Of the one in whose queue requests wait, ``queued`` are those that do. ``again`` are those that have arrived again
    so far, by this one or by the address of the workload itself.
    """

    address: str
    limit: int
    open: int
    ready: bool
    ends: bool
    proven: bool
    weight: int = 1
    queued: int = 0
    again: int = 0


class LiveBackend(NamedTuple):
    """The counts of a workload: requests so far and now, and refused ones so far. Those that arrive again count twice.

    Only one that is ``published`` gets requests.
    """

    arrived: int
    open: int
    refused: int
    servers: dict[str, LiveServer]
    published: bool = True

    @property
    def replicas(self) -> list[LiveServer]:
        """The servers that are replicas."""
        return [server for name, server in self.servers.items() if name not in OWN]

    @property
    def wait(self) -> LiveServer:
        """The server in whose queue requests wait."""
        return self.servers.get(WAIT, _NO_SERVER)

    @property
    def active(self) -> int:
        """The requests that replicas work on."""
        return sum(replica.open for replica in self.replicas)

    def traffic(self, *, on_hold: bool = False) -> Traffic:
        """The counts for autoscaling. Those that an operator holds wait, and have arrived when that ends.

        Afterwards they are open twice, so a second hold counts those of the first one that are not answered yet.
        """
        active, wait, own = self.active, self.wait, self.servers.get(SELF, _NO_SERVER)
        twice = wait.open if on_hold else wait.open + own.open
        return Traffic(self.arrived - wait.again - own.again, active, max(self.open - twice - active, 0))

    def traffic_of(self, counted: Counted, *, on_hold: bool = False) -> Traffic:
        """The counts for autoscaling where only the ``counted`` requests are traffic."""
        waiting = min(self.traffic(on_hold=on_hold).waiting, counted.open)
        return Traffic(counted.arrived, counted.open - waiting, waiting)

    def differs(self, former: LiveBackend | None) -> bool:
        """Whether the servers may have changed since they were as in ``former``."""
        return self.open > 0 or former is None or self[:3] != former[:3]


Live = Mapping[str, LiveBackend]
"""Backends of a process by their names."""

_NO_SERVER = LiveServer("", 0, open=0, ready=False, ends=False, proven=False)


class _Row(NamedTuple):
    """A row of ``show stat``: of a server, or with the ``counts`` of a backend, which lack its servers."""

    backend: str
    name: str
    address: str
    counts: LiveBackend
    server: LiveServer | None


class StatReader:
    """Reads the output of ``show stat``, thousands of rows of which few have changed since the last time."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._backends: dict[str, tuple[LiveBackend, LiveBackend]] = {}

    def read(self, text: str) -> dict[str, LiveBackend]:
        """The backends by name. One that has not changed is the same object as before.

        Raises EngineError if the output is of another form.
        """
        lines = text.splitlines()
        columns = next((line for line in lines if line.startswith("# ")), "")[2:].split(",")
        if not text.replace(_NO_BACKEND, "").strip():
            return {}
        if not set(_COLUMNS) <= set(columns):
            raise EngineError("HAProxy shows its state in an unknown form", reason=Reason.PROXY_FAILED)
        at = [columns.index(name) for name in _COLUMNS]
        servers: dict[str, dict[str, LiveServer]] = {}
        rows, backends = dict[str, _Row](), dict[str, tuple[LiveBackend, LiveBackend]]()
        for line in lines:
            # All that counts is in the first columns, but for the address: the others are not even split.
            *first, rest = line.split(",", at[-2] + 1)
            if len(first) <= at[-2] or line.startswith("# "):
                continue
            start = line[: len(line) - len(rest)]
            row = self._rows.get(start)
            if row is None or row.address not in rest:
                fields = [*first, *rest.split(",")]
                if len(fields) < len(columns):
                    continue
                row = _parsed_row(fields, at)
            rows[start] = row
            if row.server is not None:
                servers.setdefault(row.backend, {})[row.name] = row.server
            elif row.name == _BACKEND and not row.backend.startswith("_"):
                own, current = servers.get(row.backend, {}), self._backends.get(row.backend)
                if current is None or current[0] is not row.counts or current[1].servers != own:
                    live_backend = row.counts._replace(servers=own)
                    current = (
                        row.counts,
                        current[1] if current is not None and current[1] == live_backend else live_backend,
                    )
                backends[row.backend] = current
        self._rows, self._backends = rows, backends
        return {name: backend for name, (_, backend) in backends.items()}


def _parsed_row(fields: list[str], at: list[int]) -> _Row:
    row = [fields[number] for number in at]
    server = _live_server(row) if row[1] not in (_FRONTEND, _BACKEND) else None
    # Those whose time in a queue was over were not denied.
    refused = _parse_number(row[6]) + _parse_number(row[9])
    counts = LiveBackend(_parse_number(row[4]), _parse_number(row[2]), refused, {}, _UNPUBLISHED not in row[7])
    # A comma on each side, since an address can be a part of another one.
    return _Row(row[0], row[1], f",{row[11]}," if server is not None else "", counts, server)


def _live_server(row: list[str]) -> LiveServer:
    status, limit = row[7], _parse_number(row[3])
    return LiveServer(
        address=row[11],
        limit=0 if limit == UNLIMITED else limit,
        open=_parse_number(row[2]),
        ready=status in _READY,
        ends=status.startswith(("DRAIN", "MAINT")),
        # Only a server that had proven itself is without a limit.
        proven=limit in (0, UNLIMITED) or _parse_number(row[5]) > 0,
        weight=_parse_number(row[10]),
        queued=_parse_number(row[8]) if row[1] == WAIT else 0,
        again=_parse_number(row[4]) if row[1] in OWN else 0,
    )


def _parse_number(text: str) -> int:
    return int(text) if text else 0


def list_commands(backends: Iterable[Backend], live: Live) -> Iterator[str]:
    """What brings the servers of ``live`` to what is wanted. Servers come before others leave.

    Requests wait from before the last replica leaves; when one comes, they arrive again, and reach it.

    A server that is not wanted gets no new requests at once; it is removed when its last one has ended. Backends that
    the live process does not have are left out.
    """
    for backend in backends:
        name = backend.name
        live_backend = live.get(name)
        if live_backend is not None:
            yield from _bring_own(backend, live_backend)
            ready = any(replica.ready for replica in live_backend.replicas)
            if ready and not backend.servers:
                yield f"add map ./{EMPTY} {name} {NO_REPLICA}"
            arrive = bool(backend.servers) and (not ready or live_backend.wait.queued > 0)
            if arrive:
                # Before requests can reach the replica: they get the timeout of those that need not wait.
                yield f"del map ./{EMPTY} {name}"
            for backend_server in backend.servers:
                yield from _bring_server(
                    f"{name}/{backend_server.name}",
                    backend,
                    backend_server,
                    live_backend.servers.get(backend_server.name),
                )
            if arrive:
                yield from [f"set maxconn server {name}/{WAIT} {UNLIMITED}"] * count_limit_changes(live_backend.wait)
                yield f"set maxconn server {name}/{WAIT} 1"
            for other in sorted(live_backend.servers.keys() - OWN - {server.name for server in backend.servers}):
                yield from take_out(f"{name}/{other}", live_backend.servers[other])
            if not live_backend.published:
                # Last, so that its first request finds servers.
                yield f"publish backend {name}"


def count_limit_changes(wait: LiveServer) -> int:
    """How often its limit has to change until all requests that wait arrive again."""
    return wait.queued // DEQUEUED + USUAL_TIMES


def map_commands(name: str, desired: Mapping[str, str], live: Mapping[str, str]) -> Iterator[str]:
    """What brings the map ``name`` to what is wanted. Entries come before others change, and leave last.

    One that counts others, whose names it begins, comes after them and leaves before them.
    """
    for key in sorted(desired.keys() - live.keys(), reverse=True):
        yield f"add map ./{name} {key} {desired[key]}"
    for key in sorted(key for key, value in desired.items() if live.get(key, value) != value):
        yield f"set map ./{name} {key} {desired[key]}"
    for key in sorted(live.keys() - desired.keys()):
        yield f"del map ./{name} {key}"


def desired_entries(backends: Iterable[Backend], live: Mapping[str, str]) -> dict[str, str]:
    """The entries for ``backends`` in the map of versions.

    Where the versions of replicas are not known yet, since an earlier daemon found them ready, those of ``live`` stay.
    """
    split_map: dict[str, str] = {}
    for backend in backends:
        if backend.splits_requests:
            if all(server.version for server in backend.servers):
                split_map |= split_entries(backend.name, {server.name: server.version for server in backend.servers})
            else:
                split_map |= {entry: value for entry, value in live.items() if backend_of(entry) == backend.name}
    return split_map


def _bring_own(backend: Backend, live: LiveBackend) -> Iterator[str]:
    """Bring the servers that are the address of the workload itself."""
    for name, words in ((SELF, add_self(backend)), (WAIT, add_wait(backend))):
        server = live.servers.get(name)
        if server is None:
            yield f"add server {backend.name}/{name} {words}"
        # HAProxy adds servers in maintenance.
        if server is None or not server.ready:
            yield f"set server {backend.name}/{name} state ready"


def _bring_server(path: str, backend: Backend, server: Server, live: LiveServer | None) -> Iterator[str]:
    if live is None:
        yield f"add server {path} {add_server(backend, server)}"
    else:
        if live.address != server.address:
            host, _, port = server.address.rpartition(":")
            yield f"set server {path} addr {host} port {port}"
        if live.limit != server.limit:
            yield f"set maxconn server {path} {server.limit or UNLIMITED}"
        if live.weight != server.weight:
            yield f"set server {path} weight {server.weight}"
    if live is None or not live.ready:
        yield f"set server {path} state ready"


def take_out(path: str, live: LiveServer) -> Iterator[str]:
    """Remove a server, or let it drain first."""
    if not live.ends and live.open:
        yield f"set server {path} state drain"
    # HAProxy deletes only servers in maintenance, without connections.
    elif not live.open:
        yield f"set server {path} state maint"
        yield f"del server {path}"


def list_add_commands(
    options: ProxyOptions, loaded: LoadedConfig, backends: Iterable[Backend], live: Live
) -> Iterator[str]:
    """The commands that add the backends which ``live`` lacks, with their servers, as far as no reload is needed."""
    for backend in backends if options.runtime else ():
        name, shape = backend.name, shape_of(options, backend)
        loadable = shape.profile in loaded.profiles and backend.port in loaded.ports.get(backend.mode, ())
        if name not in live and loadable and not shape.lines:
            yield f"add backend {name} from {shape.profile}"
            yield from list_commands((backend,), {name: LiveBackend(0, 0, 0, {}, published=False)})


def list_remove_commands(name: str, live: LiveBackend) -> Iterator[str]:
    """The commands that remove a backend, as far as its open requests permit."""
    if live.published:
        yield f"unpublish backend {name}"
    for server, live_server in sorted(live.servers.items()):
        yield from take_out(f"{name}/{server}", live_server)
    if not live.open:
        yield f"del backend {name}"
