"""The routes of a location in HAProxy: what of the table it can serve, at which ports, and the maps that lead there."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.engines.host.dataplane.haproxy.certificates import RouteCertificates
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit
from reconciler.engines.host.dataplane.haproxy.ingress import (
    SUBDOMAINS,
    Ingress,
    Listener,
    list_listeners,
    map_text,
    render_frontends,
    route_entries,
    rule_line,
    service_lines,
)
from reconciler.engines.host.dataplane.haproxy.live import map_commands
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.outside import change_lines, fault_of, origin_lines, usable_origin
from reconciler.engines.host.dataplane.haproxy.rendering.quoting import LONGEST_LINE
from reconciler.engines.host.dataplane.haproxy.rendering.render import Frontends
from reconciler.engines.host.dataplane.haproxy.tls import BIND
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.table import Outside, RouteRule, RouteTable, Site
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import IngressSettings

_BIND = re.compile(r"^frontend _in:.*\n((?:  bind .*\n)+)", re.MULTILINE)
_ADDRESS = re.compile(r"^  bind (\S+)", re.MULTILINE)
_ALERT = re.compile(r"\[ALERT\].*? parsing \[[^]:]*:(\d+)\] ?: ?(.*)")
_START = ["defaults", "  mode http", "  timeout client 1s", "frontend check", "  acl outside always_true"]
_MOST_KNOWN = 100_000

_DIGEST = "_digest"
"""The key of the entry with the digest: no host name, and the start of no site, since it has no port."""
_PARTIAL = "partial"
FEW = 1000
"""With fewer changes, single entries change; otherwise a new version of the map replaces it at once."""
LONGEST_PAYLOAD = 12_000
"""Bytes of entries that are sent at once; HAProxy reads them into a buffer of 16 KiB."""
_SAFE_COMMAND = re.compile(r"[A-Za-z0-9._~:/|*% -]+")
"""A command without a character that means something to the command line of HAProxy."""
_LIVE = re.compile(r'found=(?:no|yes.*value="([^"]*)")')
_VERSION = re.compile(r"created: (\d+)")


class _Map(NamedTuple):
    """The entries of a map with their digest."""

    digest: str
    entries: Mapping[str, str]


class RouteChecks:
    """Finds the routes that the HAProxy of ``master`` refuses, before its configuration has them and it takes none.

    It is asked about each line once, and may stop at the first one that it refuses.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._verdicts: dict[str, str] = {}

    async def usable(self, table: RouteTable) -> RouteTable:
        """``table`` without what HAProxy refuses, which becomes problems of domains. Raises EngineError."""
        faults = {rule.id: fault_of(rule) for rule in table.rules}
        lines = {rule.id: list(_rule_lines(table, rule)) for rule in table.rules if not faults[rule.id]}
        origins = {site.id: list(origin_lines(site.cors)) for site in table.sites if site.cors is not None}
        await self._check({line for texts in (*lines.values(), *origins.values()) for line in texts})
        problems: dict[str, list[str]] = {name: list(texts) for name, texts in table.problems.items()}
        verdicts = {name: fault or self._refusal(lines[name]) for name, fault in faults.items()}
        refused = {name: why for name, why in verdicts.items() if why}
        bad_sites = {site.id: why for site in table.sites if (why := self._cors_fault(site, origins.get(site.id, [])))}
        for text, why in (*refused.items(), *bad_sites.items()):
            site, _, number = text.partition("/")
            what = f"route {int(number) + 1}" if number else "CORS"
            domain, _, port = site.rpartition(":")
            problems.setdefault(domain, []).append(f"{what} of port {port} is left out: {why}")
        return _remove_rules(table, refused.keys(), bad_sites.keys(), problems)

    def _cors_fault(self, site: Site, lines: Iterable[str]) -> str:
        if site.cors is not None and not all(map(usable_origin, site.cors.allow_origins)):
            return "an origin is empty, too long, or has characters other than printable ASCII"
        return self._refusal(lines)

    def _refusal(self, lines: Iterable[str]) -> str:
        return next((why for line in lines if (why := self._verdicts.get(line, ""))), "")

    async def _check(self, lines: set[str]) -> None:
        if len(self._verdicts) > _MOST_KNOWN:
            self._verdicts.clear()
        new = sorted(line for line in lines if line not in self._verdicts)
        for new_line in new:
            self._verdicts[new_line] = "it is too long" if len(new_line) > LONGEST_LINE else ""
        while new := [text for text in new if not self._verdicts[text]]:
            alerts = _ALERT.findall(await self._master.check_text("\n".join([*_START, *new, ""])))
            places = [(int(number) - len(_START) - 1, why.strip()) for number, why in alerts]
            refusals = [(at, why) for at, why in places if 0 <= at < len(new)]
            for at, why in refusals:
                self._verdicts[new[at]] = f"HAProxy refuses it: {why}"
            # Other alerts are about no line, so another round would not end.
            if not refusals:
                break


class LiveMaps:
    """Brings maps of the process that ``master`` manages to what is desired.

    An entry of each is the digest of all others: one read compares it.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._desired: dict[str, _Map] = {}
        self._brought: dict[str, _Map] = {}

    def write(self, name: str, entries: Mapping[str, str]) -> None:
        """Desire the map ``name``, and write the file from which a new worker gets it. Raises EngineError."""
        text = map_text(entries)
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        current = self._desired.get(name)
        if current is None or current.digest != digest:
            self._master.write_file(name, f"{_DIGEST} {digest}\n{text}")
            self._desired[name] = _Map(digest, entries)

    def in_force(self, name: str) -> Mapping[str, str]:
        """The entries of a map as they were brought to a process last."""
        return self._brought[name].entries if name in self._brought else {}

    async def add(self, name: str, entries: Mapping[str, str]) -> None:
        """Add ``entries`` at once to a map that is as it is desired. Raises EngineError."""
        brought = self._brought.get(name)
        if brought is not None and brought is self._desired.get(name):
            self.write(name, {**brought.entries, **entries})
            await self._change(name, self._desired[name], brought.digest)
            self._brought[name] = self._desired[name]

    async def bring(self) -> None:
        """Compare the live maps with the desired ones, and change them. Raises EngineError."""
        for name, desired in self._desired.items():
            live = _LIVE.search(await self._master.ask(f"@1 get map ./{name} {_DIGEST}"))
            # A process that does not know the map waits for a reload, or does not need it.
            if live is not None:
                if live[1] != desired.digest:
                    await self._change(name, desired, live[1])
                self._brought[name] = desired

    async def _change(self, name: str, desired: _Map, live: str | None) -> None:
        brought = self._brought.get(name)
        # The order of subdomains decides, and a command adds an entry only at the end.
        if brought is not None and brought.digest == live and name != SUBDOMAINS:
            changes = list(map_commands(name, desired.entries, brought.entries))
            if len(changes) <= FEW and all(map(_SAFE_COMMAND.fullmatch, changes)):
                # A change that is cut short shows in the digest.
                await self._master.send([f"set map ./{name} {_DIGEST} {_PARTIAL}", *changes])
                await self._master.send([f"set map ./{name} {_DIGEST} {desired.digest}"])
                return
        # Requests find the former version until the commit.
        answer = await self._master.ask(f"@1 prepare map ./{name}")
        if (version := _VERSION.search(answer)) is None:
            raise EngineError(f"HAProxy takes no new version of {name}", reason=Reason.PROXY_FAILED)
        for lines in _list_payloads({_DIGEST: desired.digest, **desired.entries}):
            await self._master.ask(f"@1 add map @{version[1]} ./{name} <<\n{lines}")
        await self._master.ask(f"@1 commit map @{version[1]} ./{name}")


class RouteServer:
    """Serves the table that ``routes`` returns, at the ports of ``settings``; without settings, nothing.

    ``table`` is what HAProxy serves of it, ``error`` is why it cannot listen where it should, and ``in_force`` is the
    table that the live process serves.
    """

    def __init__(
        self,
        master: Master,
        settings: IngressSettings | None,
        routes: Callable[[], RouteTable],
    ) -> None:
        self.table = RouteTable()
        self.error = ""
        self._certificates: RouteCertificates | None = None
        self.in_force: RouteTable | None = None
        self._settings = settings
        self._routes = routes
        self._master = master
        self._checks = RouteChecks(master)
        self._maps = LiveMaps(master)
        self._prepared: RouteTable | None = None
        self._open: set[str] = set()
        self._secure: frozenset[str] = frozenset()

    @property
    def problems(self) -> Mapping[str, tuple[str, ...]]:
        """Why parts of domains are not served, by the name of the domain."""
        messages = dict(self.table.problems)
        for name, texts in self._certificates.problems.items() if self._certificates is not None else ():
            messages[name] = (*messages.get(name, ()), *texts)
        return messages

    @property
    def state(self) -> object:
        """All that is reported about routes and certificates: another value is a change."""
        return (
            self.error,
            self.problems,
            self._certificates.served_certificates if self._certificates is not None else None,
        )

    def secure(self, certificates: RouteCertificates) -> None:
        """Serve host names with TLS too, as far as they have ``certificates``."""
        self._certificates = certificates

    def open(self) -> None:
        """Learn from the configuration in force which ports are its own."""
        binds = _BIND.findall(self._master.config()) if self._master.running else []
        self._open = set(_ADDRESS.findall("".join(binds)))

    async def prepare(self) -> RouteTable:
        """Take the current table, without what HAProxy refuses, and write its maps; return it. Raises EngineError."""
        if self._settings is None:
            return self.table
        if (table := self._routes()) is not self._prepared:
            self.table = await self._checks.usable(table)
        if self._certificates is not None:
            await self._certificates.prepare(self.table)
        secure = self._certificates.hosts if self._certificates is not None else frozenset()
        if table is not self._prepared or secure != self._secure:
            for name, entries in route_entries(self.table, secure).items():
                self._maps.write(name, entries)
            self._prepared, self._secure = table, secure
        return self.table

    def frontends(self, services: Collection[Service]) -> Frontends:
        """What takes requests to ``services``, with the sections for those from outside."""
        lines = service_lines(services, self.table)
        seconds = max((service.timeout_seconds for service in services), default=0)
        return Frontends(self._sections(lines, seconds) if self._settings is not None else "", lines, seconds)

    def _sections(self, lines: tuple[str, ...], seconds: int) -> str:
        assert self._settings is not None
        if not self._master.running:
            self._open.clear()
        self.error = self._certificates.error if self._certificates is not None else ""
        tls, challenge, reloads = "", "", 0
        if self._certificates is not None:
            tls, challenge, reloads = BIND, self._certificates.challenge, self._certificates.reloads
        usable = tuple(
            listener for listener in list_listeners(self._settings, self.table, tls) if self._can_listen(listener)
        )
        return render_frontends(Ingress(self._settings, self.table, usable, lines, challenge, reloads), seconds)

    async def bring(self, *, complete: bool) -> None:
        """Bring the live maps to the table. ``complete``: the process has the frontends. Raises EngineError."""
        if self._settings is not None and self._master.running:
            self.open()
            await self._maps.bring()
            if self._certificates is not None and complete:
                await self._certificates.bring()
            self.in_force = self._prepared if complete else None

    def _can_listen(self, listener: Listener) -> bool:
        assert self._settings is not None
        for address in self._settings.addresses:
            endpoint = f"{f'[{address}]' if ':' in address else address}:{listener.port}"
            if endpoint not in self._open and (why := _bind_fault(address, listener.port, self._master.unit)):
                self.error = f"the ingress cannot listen at {endpoint}: {why}"
                return False
        return True


def _bind_fault(address: str, port: int, unit: ProxyUnit) -> str:
    """Why HAProxy cannot listen at ``address``; "" if it can. The one of ``unit`` may take ports below 1024."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # As HAProxy does: old connections that are about to end take no port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            # With this option two programs can bind one port, but only one can listen.
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "another program uses this port"
        if error.errno == errno.EACCES:
            return "" if unit.is_enabled() else f"a port below 1024 needs the unit of HAProxy: {unit.advice}"
        return os.strerror(error.errno or 0)
    return ""


def _rule_lines(table: RouteTable, rule: RouteRule) -> Iterator[str]:
    if rule.prefix is None or rule.site not in table.mapped:
        yield rule_line(rule)
    yield from change_lines(rule)


def _remove_rules(
    table: RouteTable, rules: Iterable[str], sites: Iterable[str], problems: dict[str, list[str]]
) -> RouteTable:
    left_out, bare = set(rules), set(sites)
    if not left_out and not bare:
        return table

    def list_remaining(entries: tuple[RouteRule, ...]) -> tuple[RouteRule, ...]:
        return tuple(rule for rule in entries if rule.id not in left_out)

    def strip_cors(entries: tuple[Site, ...]) -> tuple[Site, ...]:
        return tuple(replace(site, cors=None) if site.id in bare else site for site in entries)

    def reduce_outside(outside: Outside) -> Outside:
        return replace(outside, rules=list_remaining(outside.rules), sites=strip_cors(outside.sites))

    return replace(
        table,
        rules=list_remaining(table.rules),
        sites=strip_cors(table.sites),
        workloads={key: reduce_outside(outside) for key, outside in table.workloads.items()},
        problems={name: tuple(texts) for name, texts in problems.items()},
    )


def _list_payloads(entries: Mapping[str, str]) -> Iterator[str]:
    """The lines of a map, in parts that HAProxy can read at once."""
    lines: list[str] = []
    size = 0
    for key, value in entries.items():
        line = f"{key} {value}\n"
        if size + len(line) > LONGEST_PAYLOAD:
            yield "".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    yield "".join(lines)
