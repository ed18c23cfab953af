"""A Podman service in memory at a real socket, for daemons that are processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import h11
import httpx2

from tests.engines.host.runtimes.podman.libpod import Libpod

_BLOCK = 1 << 16


@contextlib.contextmanager
def served(service: Libpod, path: Path) -> Iterator[None]:
    """Serve at the socket ``path``, in a thread; meanwhile ``service`` belongs to that thread."""

    async def serve(ready: threading.Event, end: asyncio.Event) -> None:
        clients: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            clients.add(task)
            with contextlib.suppress(OSError, h11.RemoteProtocolError, asyncio.CancelledError):
                await _serve(service, reader, writer)
            clients.discard(task)
            writer.close()

        server = await asyncio.start_unix_server(accept, path)
        ready.set()
        await end.wait()
        server.close()
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    with in_thread(serve):
        yield


@contextlib.contextmanager
def in_thread(serve: Any) -> Iterator[None]:
    """Run ``serve(ready, end)`` in the loop of another thread, from its ``ready`` until the block ends."""
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    work: Coroutine[Any, Any, None] = serve(ready, end)
    thread = threading.Thread(target=lambda: loop.run_until_complete(work), daemon=True)
    thread.start()
    assert ready.wait(60.0)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60.0)
        assert not thread.is_alive()
        loop.close()


async def _serve(service: Libpod, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    link = h11.Connection(h11.SERVER)
    while True:
        request = await _request(link, reader)
        if request is None:
            return
        try:
            answer = await service.handle(request)
        except httpx2.TransportError:
            return
        headers = [(name, value) for name, value in answer.headers.raw if name.lower() != b"transfer-encoding"]
        if b"content-length" not in {name.lower() for name, _ in headers} and answer.status_code not in (204, 304):
            headers.append((b"Transfer-Encoding", b"chunked"))
        writer.write(link.send(h11.Response(status_code=answer.status_code, headers=headers)) or b"")
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        async for part in answer.stream:
            writer.write(link.send(h11.Data(data=part)) or b"")
            await writer.drain()
        writer.write(link.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        if link.our_state is h11.MUST_CLOSE:
            return
        link.start_next_cycle()


async def _request(link: h11.Connection, reader: asyncio.StreamReader) -> httpx2.Request | None:
    head, body = None, b""
    while True:
        event = link.next_event()
        if event is h11.NEED_DATA:
            link.receive_data(await reader.read(_BLOCK))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            url = f"http://podman{head.target.decode()}"
            return httpx2.Request(head.method.decode(), url, headers=list(head.headers), content=body)
        else:
            return None
