"""Load on the HTTP API from a process of its own: ``python -m tests.bench.load JSON`` prints what it found as JSON."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.measure import percentile


class _Client(asyncio.Protocol):
    """One connection that requests one path after another until ``paths`` ends."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = b""
        self._length = -1
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        path = self._load.next_path()
        if not path:
            self._transport.close()
            self.ended.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(b"GET %s HTTP/1.1\r\nHost: api\r\n\r\n" % path.encode())

    def data_received(self, received: bytes) -> None:
        self._received += received
        if self._length < 0:
            head, found, _ = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 200"), self._received[:500]
            size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._length = len(head) + 4 + int(size)
        if len(self._received) >= self._length:
            self._load.taken.append(time.perf_counter() - self._began)
            self._received, self._length = b"", -1
            self._ask()


class _Load:
    """Random paths for ``seconds``, and how long each answer took."""

    def __init__(self, paths: Sequence[str], seconds: float) -> None:
        self._random = random.Random(7)
        self._paths = paths
        self._end = time.perf_counter() + seconds
        self.taken: list[float] = []

    def next_path(self) -> str:
        return "" if time.perf_counter() > self._end else self._random.choice(self._paths)


async def ask(socket: str, paths: Sequence[str], seconds: float, connections: int) -> dict[str, Any]:
    """The rate of answers, and the percentiles of their seconds."""
    load = _Load(paths, seconds)
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
    print(json.dumps(asyncio.run(ask(**json.loads(sys.argv[1])))))
