"""Leads ports of this host to sandboxes, by a table of nftables of the location's own.

Podman would call iptables twenty times for each sandbox, and each call reads the rules of all others: a tenth of the
CPU that a start takes. Where the daemon may not change the network of this host, Podman publishes the ports.

The table is a function of the sandboxes that run, so it is written as a whole at the start of a daemon and whenever a
change of it fails. As Podman's monitor would, the daemon occupies each port. While no daemon runs nothing does, but the
port still leads to its sandbox.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from reconciler.engines.host.runtimes.podman.capabilities import answers_to_localhost
from reconciler.engines.host.runtimes.podman.programs import run_nft
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_HOST = "127.0.0.1"
_FAILURE = "ports of this host cannot be led to containers"
_FRAME = """
add table ip {table}
add map ip {table} ports {{ type inet_service : ipv4_addr . inet_service; }}
add chain ip {table} output {{ type nat hook output priority -110; }}
add chain ip {table} postrouting {{ type nat hook postrouting priority 90; }}
flush chain ip {table} output
flush chain ip {table} postrouting
flush map ip {table} ports
add rule ip {table} output ip daddr 127.0.0.1 dnat ip to tcp dport map @ports
add rule ip {table} postrouting oifname "{bridge}" ip saddr 127.0.0.1 ct status dnat masquerade
"""
"""The chains are just before those of iptables, so that a rule that a killed Podman left there takes no port."""


class PublishedPorts:
    """The ports of the sandboxes of one location. ``owner`` names the table."""

    def __init__(self, owner: str) -> None:
        self._table = f"reconciler_{owner}"
        self._bridge = ""
        self._sockets: dict[ContainerId, list[socket.socket]] = {}
        self._targets: dict[ContainerId, dict[int, str]] = {}
        self._written: dict[int, str] | None = None
        self._writing = asyncio.Lock()

    @property
    def active(self) -> bool:
        """Whether there is a table; otherwise Podman leads ports to sandboxes."""
        return bool(self._bridge)

    async def open(self, bridge: str) -> None:
        """Write the table for sandboxes on ``bridge``, an interface that may not exist yet. Raises EngineError."""
        self._bridge, self._written = bridge, None
        try:
            await self.write()
        except EngineError:
            self._bridge = ""
            raise

    def occupy(self, sandbox: ContainerId, ports: Collection[int]) -> None:
        """Let no other program listen at ``ports`` until ``release``. Raises EngineError, reason PortInUse."""
        self.release(sandbox)
        bound = self._sockets[sandbox] = []
        for port in ports:
            try:
                bound.append(_bind_port(port))
            except OSError as error:
                self.release(sandbox)
                message = f"the port {port} of this host cannot be used: {error.strerror}"
                raise EngineError(message, reason=Reason.PORT_IN_USE) from error

    def lead(self, sandbox: ContainerId, ports: Mapping[int, int], address: str) -> None:
        """Lead each assigned port in ``ports``, by the declared one, to ``address`` after the next ``write``."""
        self._targets[sandbox] = {assigned: f"{address} . {declared}" for declared, assigned in ports.items()}
        with suppress(OSError):
            # The bridge comes with the first sandbox, and is a new one each time.
            answers_to_localhost(self._bridge).write_text("1", encoding="ascii")

    def release(self, sandbox: ContainerId) -> None:
        """Lead nothing to a sandbox after the next ``write``, and let others have its ports."""
        self._targets.pop(sandbox, None)
        for listener in self._sockets.pop(sandbox, ()):
            listener.close()

    async def write(self) -> None:
        """Make the table what it has to be; those that wait have it written together. Raises EngineError."""
        async with self._writing:
            targets = {port: target for ports in self._targets.values() for port, target in ports.items()}
            if self._bridge and targets != self._written:
                before, self._written = self._written, None
                await asyncio.to_thread(self._apply, before, targets)
                self._written = targets

    async def restore(self) -> None:
        """Write the table again: whoever loads a firewall may have flushed it. Raises EngineError."""
        self._written = None
        await self.write()

    def close(self) -> None:
        """Let others have all ports; they still lead to their sandboxes."""
        for sandbox in list(self._sockets):
            self.release(sandbox)

    async def remove(self) -> None:
        """Delete the table, also that of an earlier daemon. Raises EngineError."""
        async with self._writing:
            self._bridge, self._written = "", None
            # One that does not exist cannot be deleted.
            lines = [f"add table ip {self._table}", f"delete table ip {self._table}"]
            await asyncio.to_thread(run_nft, lines, _FAILURE)

    def _apply(self, before: Mapping[int, str] | None, targets: Mapping[int, str]) -> None:
        if before is not None:
            # A change fails if somebody has removed the table; then all of it is written.
            with suppress(EngineError):
                lines = [*self._delete(before.items() - targets.items()), *self._add(targets.items() - before.items())]
                run_nft(lines, _FAILURE)
                return
        frame = _FRAME.format(table=self._table, bridge=self._bridge)
        run_nft([*frame.splitlines(), *self._add(targets.items())], _FAILURE)

    def _add(self, targets: Collection[tuple[int, str]]) -> Iterator[str]:
        if targets:
            elements = ", ".join(f"{port} : {target}" for port, target in sorted(targets))
            yield f"add element ip {self._table} ports {{ {elements} }}"

    def _delete(self, targets: Collection[tuple[int, str]]) -> Iterator[str]:
        if targets:
            elements = ", ".join(str(port) for port, _ in sorted(targets))
            yield f"delete element ip {self._table} ports {{ {elements} }}"


def _bind_port(port: int) -> socket.socket:
    """A socket that occupies ``port`` and does not listen. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind((_HOST, port))
    except OSError:
        listener.close()
        raise
    return listener
