"""Requests to an API server over its connections: whatever it answers, an answer is never taken for another one."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from reconciler.engines.kubernetes.client import http
from reconciler.engines.kubernetes.client.http import Answer, HttpPool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request with the next of ``answers``, and then OK; notes the requests of each connection."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections: list[list[bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection; an empty answer ends it."""
        requests: list[bytes] = []
        self.connections.append(requests)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].partition(b":")[2])) if length else b""
                requests.append(head + body)
                answer = self.answers.pop(0) if self.answers else OK
                writer.write(answer)
                if not answer or answer.endswith(b"<end>"):
                    break
        writer.close()


@asynccontextmanager
async def pool_for(server: Server, path: str = "", seconds: float = 5.0) -> AsyncIterator[HttpPool]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    pool = HttpPool(f"http://127.0.0.1:{port}{path}", ssl.create_default_context(), None, seconds)
    try:
        yield pool
    finally:
        pool.close()
        listener.close()


async def test_requests_in_turn_use_one_connection() -> None:
    server = Server()
    async with pool_for(server) as pool:
        for _ in range(3):
            assert (await pool.request("GET", "/version")).content == b"ok"
    assert [len(requests) for requests in server.connections] == [3]


async def test_requests_at_once_use_a_connection_each() -> None:
    server = Server()
    async with pool_for(server) as pool:
        await asyncio.gather(*(pool.request("GET", "/version") for _ in range(4)))
        await pool.request("GET", "/version")
    assert sorted(len(requests) for requests in server.connections) == [1, 1, 1, 2]


async def test_a_request_has_the_path_of_the_server_its_parameters_and_its_content() -> None:
    server = Server()
    async with pool_for(server, path="/clusters/a/") as pool:
        await pool.request("PATCH", "/api/v1/é x", params={"a": "b c&d"}, headers={"Accept": "x"}, content=b"{}")
    [[request]] = server.connections
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"PATCH /clusters/a/api/v1/%C3%A9%20x?a=b+c%26d HTTP/1.1"
    assert b"Accept: x" in head.split(b"\r\n")
    assert body == b"{}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(gzip.compress(b"abcde", mtime=0)), gzip.compress(b"abcde", mtime=0)),
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
    ],
    ids=["in chunks", "compressed", "after hints"],
)
async def test_an_answer_in_another_form_is_the_same(answer: bytes) -> None:
    server = Server(answer)
    async with pool_for(server) as pool:
        assert await _content_of(pool) == b"abcde"
        assert await _content_of(pool) == b"ok"
    assert len(server.connections) == 1


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n<end>")
    async with pool_for(server) as pool:
        assert await _content_of(pool) == b"<end>"
        assert await _content_of(pool) == b"ok"
    assert len(server.connections) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<end>",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<end>",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
        b"220 mail.example.com ESMTP\r\n",
    ],
    ids=["none", "short", "part", "no gzip", "no http"],
)
async def test_a_part_of_an_answer_is_an_error(answer: bytes) -> None:
    server = Server(answer)
    async with pool_for(server) as pool:
        with pytest.raises(OSError, match=r"ended before|no gzip|no HTTP"):
            await pool.request("GET", "/version")
        assert await _content_of(pool) == b"ok"


async def test_an_answer_that_does_not_go_on_is_an_error() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    async with pool_for(server, seconds=0.1) as pool:
        with pytest.raises(TimeoutError, match="no part of an answer"):
            await pool.request("GET", "/version")
        assert await _content_of(pool) == b"ok"


async def test_a_cancelled_request_leaves_no_answer_to_the_next() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nol")
    async with pool_for(server) as pool:
        task = asyncio.create_task(pool.request("GET", "/version"))
        while not server.connections or not server.connections[0]:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _content_of(pool) == b"ok"
    assert len(server.connections) == 2


async def test_an_answer_to_no_request_is_not_the_next_one() -> None:
    server = Server(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    async with pool_for(server) as pool:
        assert await _content_of(pool) == b"ok"
        assert await _content_of(pool) == b"ok"


async def test_an_old_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.0)
    server = Server()
    async with pool_for(server) as pool:
        await pool.request("GET", "/version")
        await pool.request("GET", "/version")
    assert len(server.connections) == 2


async def test_closing_ends_requests_that_are_under_way() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\n")
    async with pool_for(server) as pool:
        task = asyncio.create_task(pool.request("GET", "/version"))
        while not server.connections or not server.connections[0]:
            await asyncio.sleep(0)
        pool.close()
        with pytest.raises(OSError, match="ended before"):
            await task


async def _content_of(pool: HttpPool) -> bytes:
    answer: Answer = await pool.request("GET", "/version")
    assert answer.status == 200
    return answer.content
