"""Servers that answer a scrape with any bytes, at any pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class RecordedRequests(list[str]):
    """The requests that a server got, each as its head; ``port`` is where it listens."""

    port = 0


@asynccontextmanager
async def serving(*answers: bytes | Answer) -> AsyncIterator[RecordedRequests]:
    """A server on this host that gives the n-th connection the n-th answer, and all later ones the last."""
    requests = RecordedRequests()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            answer = answers[min(len(requests), len(answers)) - 1]
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    requests.port = server.sockets[0].getsockname()[1]
    try:
        yield requests
    finally:
        server.close()


def ok(body: bytes, *fields: str) -> bytes:
    """A response with ``body`` and its length."""
    return head(f"Content-Length: {len(body)}", *fields) + body


def head(*fields: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode()
