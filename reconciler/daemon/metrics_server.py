"""Serves the metrics of all workloads at one address, for Prometheus: GET /metrics, and nothing else.

A web framework would cost 20 MB and 150 ms at each start for one page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from reconciler.bugs import contain_bugs
from reconciler.engines.metrics_page import CONTENT_TYPE, render_page
from reconciler.engines.target_metrics import TargetMetrics
from reconciler.logs import log
from reconciler.tasks import cancel_and_wait

PATH = "/metrics"
PATIENCE = 10.0
"""Seconds in which a client must send its request, and read each part of the page."""
CLIENTS = 16
"""The most clients at once; the connections of others are closed."""
RETRY = 10.0
"""Seconds until the next attempt to listen at an address that another program uses."""
_HEAD = 16_384
_PART = 65_536

Targets = Callable[[], Iterable[TargetMetrics]]


class MetricsServer:
    """Listens at one address at a time; while that is impossible, it tries again."""

    def __init__(self) -> None:
        self._address = ""
        self._targets: Targets = tuple
        self._listening: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self, address: str, targets: Targets) -> None:
        """Serve ``targets()`` at ``address``, as ``HOST:PORT`` (``""``: nowhere)."""
        self._targets = targets
        if address == self._address:
            return
        await self.close()
        self._address = address
        if address:
            self._listening = asyncio.create_task(self._listen(address), name=f"metrics at {address}")

    async def close(self) -> None:
        """Stop serving."""
        self._address = ""
        if self._listening is not None:
            await cancel_and_wait((self._listening,), "the metrics address")
            self._listening = None
        await cancel_and_wait(self._clients, "clients of the metrics")

    async def _listen(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        refused = False
        while True:
            try:
                server = await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=_HEAD)
            except OSError as error:
                if not refused:
                    message = f"{error.strerror}: the metrics of workloads are not served; this is tried again"
                    log().warning("metrics", address=address, message=message)
                refused = True
                await asyncio.sleep(RETRY)
                continue
            log().info("metrics", address=address, message="the metrics of workloads are served")
            async with server:
                await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= CLIENTS:
            writer.transport.abort()
            return
        self._clients.add(task)
        try:
            with contain_bugs("metrics of workloads"), suppress(OSError, TimeoutError, ValueError, EOFError):
                await self._answer(reader, writer)
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            self._clients.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and respond. Raises OSError, TimeoutError, EOFError, and ValueError for a bad request."""
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, version = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if target.partition("?")[0] != PATH:
            writer.write(_format_text_response("404 Not Found"))
        elif method not in ("GET", "HEAD"):
            writer.write(_format_text_response("405 Method Not Allowed", "Allow: GET, HEAD\r\n"))
        else:
            chunked = version == "HTTP/1.1"
            coding = "Transfer-Encoding: chunked\r\n" if chunked else ""
            writer.write(_format_head("200 OK", f"Content-Type: {CONTENT_TYPE}\r\n{coding}"))
            if method == "GET":
                await _write_page(writer, render_page(self._targets()), chunked)
        await _drain_writer(writer)


async def _write_page(writer: asyncio.StreamWriter, parts: Iterator[bytes], chunked: bool) -> None:
    """Write ``parts`` as fast as the client reads; ``chunked`` shows it whether the page is complete."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        if not part:
            await asyncio.sleep(0)
            continue
        waiting.append(part)
        size += len(part)
        if size >= _PART:
            _write_chunk(writer, waiting, size, chunked)
            waiting, size = [], 0
            await _drain_writer(writer)
    _write_chunk(writer, waiting, size, chunked)
    if chunked:
        writer.write(b"0\r\n\r\n")


def _write_chunk(writer: asyncio.StreamWriter, parts: list[bytes], size: int, chunked: bool) -> None:
    if parts:
        writer.writelines((b"%x\r\n" % size, *parts, b"\r\n") if chunked else parts)


async def _drain_writer(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(PATIENCE):
        await writer.drain()
    await asyncio.sleep(0)


def _format_head(status: str, fields: str) -> bytes:
    return f"HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n".encode()


def _format_text_response(status: str, fields: str = "") -> bytes:
    text = f"{status.partition(' ')[2]}\n"
    return _format_head(status, f"Content-Type: text/plain\r\n{fields}Content-Length: {len(text)}\r\n") + text.encode()
