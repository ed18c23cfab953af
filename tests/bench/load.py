"""Load on the HTTP API from a process of its own: ``python -m tests.bench.load FILE`` prints what it found as JSON.

It shares the cores with the server, so it is cheap: its CPU seconds are in what it prints.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import Failed, percentile


class _Client(asyncio.Protocol):
    """One connection that sends one request after another, until those of ``load`` end."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        request = self._load.next_request()
        if not request:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, received: bytes) -> None:
        if self._received:
            received = self._received + received
        end = received.find(b"\r\n\r\n")
        size = received.find(b"content-length: ", 0, end) + len(b"content-length: ")
        if end < 0 or len(received) < end + 4 + int(received[size : received.find(b"\r", size)]):
            self._received = received
            return
        if not received.startswith(b"HTTP/1.1 200"):
            self.ended.set_exception(Failed(f"refused: {received[:500]!r}"))
            return
        self._load.taken.append(time.perf_counter() - self._began)
        self._received = b""
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(Failed(f"the server ended a connection: {exc}"))


class _Load:
    """Random paths for ``seconds``, and how long each answer took."""

    def __init__(self, paths: Sequence[str], seconds: float, key: str) -> None:
        self._random = random.Random(7)
        more = f"Authorization: Bearer {key}\r\n" if key else ""
        self._requests = [f"GET {path} HTTP/1.1\r\nHost: api\r\n{more}\r\n".encode() for path in paths]
        self._end = time.perf_counter() + seconds
        self.taken: list[float] = []

    def next_request(self) -> bytes:
        return b"" if time.perf_counter() > self._end else self._random.choice(self._requests)


async def ask(socket: str, paths: Sequence[str], seconds: float, connections: int, key: str) -> dict[str, Any]:
    """The rate of answers, and the percentiles of their seconds."""
    load = _Load(paths, seconds, key)
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_unix_connection(lambda: _Client(load), socket))[1] for _ in range(connections)]
    await asyncio.gather(*(client.ended for client in clients))
    return {
        "rate": len(load.taken) / seconds,
        "p50": percentile(load.taken, 0.5),
        "p99": percentile(load.taken, 0.99),
        "count": len(load.taken),
        "cpu": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(**json.loads(Path(sys.argv[1]).read_text())))))
