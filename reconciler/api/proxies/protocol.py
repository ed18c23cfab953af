"""The PROXY protocol, versions 1 and 2: the header by which a proxy names the client of a connection.

https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any

from reconciler.api.connections import HEAD_SECONDS, ClientConnection
from reconciler.errors import ParseError
from reconciler.logs import log

_LEAST = 16
"""Bytes of the shortest header of version 2; with one less, of version 1."""
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_MOST_LINE = 107
"""Bytes of the longest header of version 1."""
_MOST_BLOCK = 4096
"""Bytes that may follow the first 16 of a header of version 2; with all extensions, it has some hundred."""
_FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}
"""Family and protocol (TCP) → family and the length of an address."""
_RETRY_SECONDS = 1.0


class ProxyHeaderError(ParseError):
    """A connection that does not begin with a valid header."""


async def read_header(connection: socket.socket) -> str:
    """The address that the header at the beginning of ``connection`` names; "" where it names none.

    Not a byte behind the header is read. Raises ProxyHeaderError and OSError.
    """
    # The shortest line of version 1 has 15 bytes.
    start = await _receive_bytes(connection, _LEAST - 1)
    if start.startswith(b"PROXY "):
        return _address_of_line(await _rest_of_line(connection, start))
    if not start.startswith(_SIGNATURE):
        raise ProxyHeaderError("it has no header of the PROXY protocol")
    head = start + await _receive_bytes(connection, 1)
    version, family, length = struct.unpack("!BBH", head[12:])
    if version not in (0x20, 0x21):
        raise ProxyHeaderError("the version of its PROXY header is unknown")
    if length > _MOST_BLOCK:
        raise ProxyHeaderError("its PROXY header is too long")
    block = await _receive_bytes(connection, length)
    if version == 0x20 or family not in _FAMILIES:  # a check by the proxy itself, or a client without an address
        return ""
    name, size = _FAMILIES[family]
    if length < 2 * size + 4:
        raise ProxyHeaderError("its PROXY header is too short")
    return socket.inet_ntop(name, block[:size])


async def _rest_of_line(connection: socket.socket, line: bytes) -> bytes:
    while not line.endswith(b"\r\n"):
        if len(line) >= _MOST_LINE:
            raise ProxyHeaderError("its PROXY header is too long")
        line += await _receive_bytes(connection, 1)
    return line


def _address_of_line(line: bytes) -> str:
    match line[:-2].split(b" "):
        case [_, b"UNKNOWN", *_]:
            return ""
        case [_, (b"TCP4" | b"TCP6") as family, source, _, _, _]:
            try:
                address = ip_address(source.decode("ascii"))
            except ValueError:
                raise ProxyHeaderError("its PROXY header has no address") from None
            if address.version == (4 if family == b"TCP4" else 6):
                return str(address)
    raise ProxyHeaderError("its PROXY header is malformed")


async def _receive_bytes(connection: socket.socket, size: int) -> bytes:
    """Exactly ``size`` bytes."""
    loop, content = asyncio.get_running_loop(), b""
    while len(content) < size:
        part = await loop.sock_recv(connection, size - len(content))
        if not part:
            raise ProxyHeaderError("it ended within its PROXY header")
        content += part
    return content


class ProxiedServer:
    """Accepts connections at ``listener``; those of trusted proxies begin with a header that names the client.

    The header is read before anything else of the connection, such as TLS.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[str], ClientConnection],
        trusts: Callable[[str], bool],
        context: ssl.SSLContext | None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._make = make
        self._trusts = trusts
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported = False
        self._start(self._accept())

    def close(self) -> None:
        """Accept no more connections."""
        for task in self._tasks:
            task.cancel()
        self._listener.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="connections of proxies")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listener)
            except OSError:  # such as too many open files, as at any other server of asyncio
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._start(self._serve(connection, str(peer[0])))

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            address = ""
            if self._trusts(peer):
                async with asyncio.timeout(HEAD_SECONDS):
                    address = await read_header(connection)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(address), connection, ssl=self._context
            )
        except ProxyHeaderError as error:
            connection.close()
            self._report(peer, error)
        except (OSError, TimeoutError):
            connection.close()
        except BaseException:
            connection.close()
            raise

    def _report(self, peer: str, error: ProxyHeaderError) -> None:
        """Say once why connections of a proxy are closed: a client that goes away may be the cause of one."""
        if not self._reported:
            log().warning("api", message=f"a connection of the proxy {peer} was closed: {error}; see api.proxyProtocol")
        self._reported = True
