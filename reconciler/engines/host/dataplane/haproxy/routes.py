"""The routes of a location in HAProxy: what of the table it can serve, its ports, and its maps."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Collection, Mapping

from reconciler.engines.host.dataplane.haproxy.certificates import RouteCertificates
from reconciler.engines.host.dataplane.haproxy.checks import RouteChecks
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit
from reconciler.engines.host.dataplane.haproxy.ingress import (
    Ingress,
    Listener,
    list_listeners,
    render_frontends,
    service_lines,
)
from reconciler.engines.host.dataplane.haproxy.maps import LiveMaps, route_entries
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.rendering.render import Frontends
from reconciler.engines.host.dataplane.haproxy.tls import BIND
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.settings import IngressSettings

_BIND = re.compile(r"^frontend _in:.*\n((?:  bind .*\n)+)", re.MULTILINE)
_ADDRESS = re.compile(r"^  bind (\S+)", re.MULTILINE)


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
        return self.error, self.problems, self._certificates.served if self._certificates is not None else None

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
