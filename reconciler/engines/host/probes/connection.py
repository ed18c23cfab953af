"""Connections to ports of this host as plain sockets: streams of asyncio take three times the CPU for each probe.

Each probe has a connection of its own. One that stays open would spare a third of the CPU, but answers even when the
program no longer accepts connections, and keeps a program that serves one at a time from serving others.
"""

from __future__ import annotations

import asyncio
import socket

from reconciler.engines.host.probes.response import CLOSED, Head, ProbeError, parse_head

HOST = "127.0.0.1"
"""The address that replicas listen on."""

_READ = 16_384


async def connect_to_port(port: int) -> socket.socket:
    """A connection to ``port``. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect((HOST, port))
    except BlockingIOError:
        try:
            await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
        except BaseException:
            sock.close()
            raise
    except BaseException:
        sock.close()
        raise
    return sock


async def exchange_request(sock: socket.socket, request: bytes) -> Head:
    """The head of the response to ``request``; its body is read and discarded. Raises ProbeError and OSError."""
    loop, received = asyncio.get_running_loop(), bytearray()
    await loop.sock_sendall(sock, request)
    while (head := parse_head(received)) is None:
        part = await loop.sock_recv(sock, _READ)
        if not part:
            raise ProbeError(CLOSED)
        received += part
    left = head.unread - (len(received) - head.size)
    while left > 0 and (part := await loop.sock_recv(sock, _READ)):
        left -= len(part)
    return head
