"""Replicas that answer at real ports, and clients of a workload's address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconciler.engines.host.dataplane.endpoints import Endpoint

PATIENCE = 60.0
PORT = 8080


class Replica:
    """A server that answers each line with its name, once ``gate`` is open.

    It got ``lines``, and ``most`` connections were open at once.
    """

    def __init__(self, name: str, version: int = 1) -> None:
        self.name = name
        self.version = version
        self.gate = asyncio.Event()
        self.gate.set()
        self.connections = 0
        self.lines = 0
        self.open = 0
        self.most = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> Replica:
        """Listen at ``port``, or at a free one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return self

    @property
    def endpoint(self) -> Endpoint:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return Endpoint(self.name, f"127.0.0.1:{port}", {str(PORT): f"127.0.0.1:{port}"}, self.version)

    def stop(self) -> Endpoint:
        """Stop listening; the address where it was."""
        endpoint = self.endpoint
        assert self._server is not None
        self._server.close()
        return endpoint

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while line := await reader.readline():
                self.lines += 1
                await self.gate.wait()
                writer.write(self.name.encode() + b" " + line)
                await writer.drain()
        finally:
            self.open -= 1
            writer.close()


class Client:
    """A connection to an address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: str) -> Client:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, line: bytes = b"hello\n") -> None:
        self.writer.write(line)

    async def answer(self) -> str:
        """The next line of the answer; "" at the end."""
        async with asyncio.timeout(PATIENCE):
            return (await self.reader.readline()).decode().strip()

    def close(self) -> None:
        self.writer.close()


async def ask(address: str) -> str:
    """The answer to one line on a connection of its own."""
    client = await Client.to(address)
    try:
        client.send()
        return await client.answer()
    finally:
        client.close()


async def until(true: Callable[[], object]) -> None:
    """Return when it is so."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)
