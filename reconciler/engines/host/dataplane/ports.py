"""Ports of this host: free ones of a range, for replicas and for the endpoints of workloads."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.platform import BLOCKED_PORTS
from reconciler.reasons import Reason
from reconciler.settings import HostSettings

REPLICA_PORTS = range(20000, 32000)
"""Below the range that Linux uses for outgoing connections (from 32768 on), so that none of those conflicts."""

_decode = msgspec.json.Decoder(dict[str, int]).decode
_LISTENS = "0A"
_ADDRESSES = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::"))


def free_ports(
    declared: Sequence[int],
    taken: Collection[int],
    spread: str = "",
    among: range = REPLICA_PORTS,
    *,
    reuse: bool = False,
) -> dict[int, int]:
    """A free port of ``among`` for each declared one, none of them ``taken`` or blocked.

    No program listens on them now; another one may before the container does. ``spread`` (a replica's name) determines
    where the search starts, so that a released port is not reused at once. ``reuse`` is for a program that is known to
    set SO_REUSEADDR. Raises EngineError, reason NoFreePort.
    """
    start = _hash_text(spread) % max(len(among), 1)
    candidates = chain(among[start:], among[:start])
    ports: dict[int, int] = {}
    for number in declared:
        usable = (port for port in candidates if port not in taken and port not in BLOCKED_PORTS)
        port = next((port for port in usable if can_bind_port(port, new=not reuse)), None)
        if port is None:
            message = f"no port of this host between {among.start} and {among.stop - 1} is free"
            raise EngineError(message, reason=Reason.NO_FREE_PORT)
        ports[number] = port
    return ports


def can_bind_port(port: int, *, new: bool = False) -> bool:
    """Whether a program could listen on ``port`` now, on all addresses of this host or on localhost.

    Remains of closed connections do not block a program that sets SO_REUSEADDR, as servers do; a ``new`` port must be
    free even of those.
    """
    return all(_can_bind_address(family, address, port, new) for family, address in _ADDRESSES)


def listening_ports(proc: Path = Path("/proc")) -> set[int]:
    """TCP ports of this host that a process listens on."""
    ports = set()
    for name in ("tcp", "tcp6"):
        path = proc / "self" / "net" / name
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _LISTENS:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _can_bind_address(family: socket.AddressFamily, address: str, port: int, new: bool) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if not new:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        # A host without IPv6 has no IPv6 listener.
        return error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
    return True


class ServicePorts:
    """The port of each workload's address at one location; ``file`` has them, for every data plane and every daemon."""

    def __init__(self, file: Path, settings: HostSettings) -> None:
        self._file = file
        self._among = range(settings.first_service_port, settings.last_service_port + 1)
        self._ports = self._read()

    def find(self, key: Key) -> int | None:
        """The port of ``key``; None if it has none yet."""
        return self._ports.get(_format_key(key))

    def assign(self, key: Key, bound: Collection[int] = ()) -> int:
        """The port of ``key``, from now on a free one if it has none yet. Raises EngineError.

        It is the same for the same workload while that one is free, so a lost file changes no address. If a proxy has
        ``bound`` ports already, it is one of these.
        """
        if (assigned := self.find(key)) is not None:
            return assigned
        spread, spare = f"{self._file}/{key}", self._list_unreserved(bound)
        port = spare[_hash_text(spread) % len(spare)] if spare else self._free(1, spread, self._ports.values())[0]
        self.reserve(key, port)
        return port

    def usable(self, key: Key, bound: Collection[int] = (), *, served: bool = False) -> int:
        """As ``assign``. Raises EngineError also if another program uses the port; it is ours if it is ``served``."""
        port = self.assign(key, bound)
        if served or port in bound or can_bind_port(port):
            return port
        message = f"the endpoint 127.0.0.1:{port} of {key} cannot be opened: another program uses this port"
        raise EngineError(message, reason=Reason.NO_FREE_PORT)

    def spare(self, count: int, bound: Collection[int]) -> list[int]:
        """Up to ``count`` ports that are of no workload, first of all of those that a proxy has ``bound``."""
        ports = self._list_unreserved(bound)[:count]
        taken = {*self._ports.values(), *bound}
        left = count - len(ports)
        while left > 0:
            with suppress(EngineError):
                return ports + self._free(left, f"{self._file}", taken)
            # So many are not free.
            left //= 2
        return ports

    def reserve(self, key: Key, port: int) -> None:
        """Make ``port`` that of ``key``, until ``release``."""
        self._ports[_format_key(key)] = port
        self._write()

    def release(self, key: Key) -> None:
        """Release the port of a deleted workload, and those of its further endpoints, named ``NAME:PORT``."""
        name = _format_key(key)
        released = [port for port in self._ports if port == name or port.startswith(f"{name}:")]
        for text in released:
            del self._ports[text]
        if released:
            self._write()

    def _free(self, count: int, spread: str, taken: Collection[int]) -> list[int]:
        return [*free_ports(range(count), taken, spread, self._among, reuse=True).values()]

    def _list_unreserved(self, bound: Collection[int]) -> list[int]:
        reserved = set(self._ports.values())
        return sorted(port for port in bound if port in self._among and port not in reserved)

    def _read(self) -> dict[str, int]:
        try:
            ports = _decode(self._file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return {name: port for name, port in ports.items() if port in self._among}

    def _write(self) -> None:
        # Without the file, the same ports are found again, unless others have taken them meanwhile.
        with suppress(EngineError):
            write_atomic(self._file, msgspec.json.encode(self._ports), 0o600)


def _hash_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big")


def _format_key(key: Key) -> str:
    return f"{key.gvc}/{key.name}"
