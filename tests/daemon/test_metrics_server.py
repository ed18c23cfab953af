"""The page for Prometheus over real sockets: what is served to whom, and an address that is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.daemon import metrics_server as module
from reconciler.daemon.metrics_server import CLIENTS, MetricsServer
from reconciler.engines.target_metrics import Family, TargetMetrics
from tests.support.processes import free_ports
from tests.support.waiting import until

SAMPLES = b"".join(b'a{\0,number="%d"} 1\n' % number for number in range(5000))
TARGETS = [TargetMetrics(f'replica="web-{number}"', {"a": Family(SAMPLES, "gauge")}) for number in range(3)]


async def ask(port: int, request: str) -> tuple[str, bytes]:
    """The head and the body of the answer to ``request``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode(), body


async def listening(port: int) -> bool:
    """Whether a server answers at ``port``; it has no client of this question afterwards."""
    try:
        await ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n")
    except OSError:
        return False
    return True


def unchunked(body: bytes) -> bytes:
    """The content of a chunked body, which must be complete."""
    raw = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            assert body == b"\r\n"
            return raw
        raw, body = raw + body[: int(size, 16)], body[int(size, 16) + 2 :]


def play(story: Callable[[int], Awaitable[None]], server: MetricsServer | None = None) -> None:
    """Play ``story`` with a server at a port."""

    async def whole(server: MetricsServer) -> None:
        [port] = free_ports(1)
        await server.open(f"127.0.0.1:{port}", lambda: TARGETS)
        try:
            async with asyncio.timeout(60):
                while not await listening(port):
                    await asyncio.sleep(0.01)
                await story(port)
        finally:
            await server.close()
        assert not await listening(port)

    asyncio.run(whole(server or MetricsServer()))


def test_the_page_is_served() -> None:
    async def story(port: int) -> None:
        head, body = await ask(port, "GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
        page = unchunked(body).decode()
        families = {each.name: each for each in text_string_to_metric_families(page)}
        assert len(families["a"].samples) == 15_000
        assert await ask(port, "GET /metrics HTTP/1.0\r\n\r\n") == (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close",
            page.encode(),
        )

    play(story)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", "404 Not Found"),
        ("GET /metrics/../x HTTP/1.1", "404 Not Found"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("HEAD /metrics HTTP/1.1", "200 OK"),
    ],
)
def test_nothing_else_is_served(request_line: str, status: str) -> None:
    async def story(port: int) -> None:
        head, body = await ask(port, f"{request_line}\r\nHost: x\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status}\r\n")
        assert body in (b"", f"{status[4:]}\n".encode())

    play(story)


@pytest.mark.parametrize(
    "request_text", ["GET\r\n\r\n", "\x00\xff\r\n\r\n", "GET /metrics HTTP/1.1\r\n" + "a" * 20_000]
)
def test_rubbish_gets_no_answer(request_text: str) -> None:
    async def story(port: int) -> None:
        assert await ask(port, request_text) == ("", b"")

    play(story)


def test_clients_that_do_nothing_take_no_place_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.0)

    async def story(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)]
        for reader, _ in silent:
            assert await reader.read() == b""
        monkeypatch.setattr(module, "PATIENCE", 30.0)
        head, _ = await ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        for _, writer in silent:
            writer.close()

    play(story)


def test_one_client_too_many_is_refused() -> None:
    async def story(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)]
        await asyncio.sleep(0)
        with suppress(ConnectionError):
            assert await ask(port, "GET /metrics HTTP/1.1\r\n\r\n") == ("", b"")
        for _, writer in silent:
            writer.close()

    play(story)


def test_a_client_that_stops_reading_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    server = MetricsServer()
    many = [TargetMetrics(f'replica="{number}"', {"a": Family(SAMPLES)}) for number in range(100)]

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: not server._clients, "the client is cut")
        with suppress(ConnectionError):
            assert not (await reader.read()).endswith(b"\r\n0\r\n\r\n")
        writer.close()

    monkeypatch.setattr(f"{__name__}.TARGETS", many)
    play(story, server)


async def test_an_address_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.02)
    other = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    server = MetricsServer()
    await server.open(f"127.0.0.1:{port}", list)
    await asyncio.sleep(0.1)
    other.close()
    await until(lambda: server._listening is not None and not server._listening.done())
    async with asyncio.timeout(60):
        while not await listening(port):
            await asyncio.sleep(0.01)
        head, _ = await ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    await server.open("", list)
    assert not await listening(port)
