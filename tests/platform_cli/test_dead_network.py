"""A network that passes on nothing any more: what waits for the server ends with a sentence, and not after hours."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from reconciler.platform_cli import transport
from reconciler.platform_cli.client import ApiEndpoint, Client
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.remote_session import RemoteSession, open_session
from tests.support.programs import tool

SILENT_SECONDS = 2
MUCH = 8 << 20
"""Bytes that no buffer of the kernel takes whole."""
ROOT = Path(__file__).parents[2]


def test_a_dead_network_ends_sessions_and_streams_and_a_program_that_reads_late_does_not() -> None:
    """In a network of its own, which goes down while connections are open; a network of this machine is not touched."""
    command = [tool("unshare", "util-linux"), "--map-root-user", "--net", sys.executable, "-m", __name__]
    if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network of its own")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    printed = json.loads(done.stdout)
    assert printed["late"] == MUCH
    assert printed["exec"] == "no answer came for 2 s, so the exit code is unknown; the server ends the program"
    assert printed["stream"].startswith("no server answers at http://127.0.0.1:")
    assert "timed out" in printed["stream"] or "No route to host" in printed["stream"]
    assert printed["seconds"] < 10 * SILENT_SECONDS


class Peer:
    """Speaks as the API does: a program that prints a word, one that reads late, and a stream of one line."""

    def __init__(self) -> None:
        self.received = 0
        self.port = 0

    async def program(self, link: ServerConnection) -> None:
        """Print, and read only after a while if that is wanted."""
        assert link.request is not None
        if "late" not in link.request.path:
            await link.send(b"\x01begun")
            await asyncio.Event().wait()
        await asyncio.sleep(3 * SILENT_SECONDS)
        while self.received < MUCH:
            self.received += len(await link.recv()) - 1
        await link.send(b'\x03{"status": "Success"}')

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One line, and no end."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n{}\n")
        await asyncio.Event().wait()


async def opened(port: int, name: str) -> RemoteSession:
    return await open_session(Client(ApiEndpoint(f"http://127.0.0.1:{port}")), f"/{name}", (), {}, None)


async def late(port: int) -> None:
    """Send to a program that reads late."""
    session = await opened(port, "late")
    await session.write(bytes(MUCH))
    assert await session.read() is None
    assert await session.wait() == 0


async def ended(session: RemoteSession) -> str:
    """The sentence with which a session ends."""
    assert await session.read() is None
    try:
        return str(await session.wait())
    except ApiError as error:
        return str(error)


def streamed(port: int, begun: threading.Event) -> str:
    """The sentence with which a stream ends."""
    try:
        for _ in Client(ApiEndpoint(f"http://127.0.0.1:{port}")).lines("/stream", {}):
            begun.set()
    except ApiError as error:
        return str(error)
    return ""


def set_network(state: str) -> None:
    subprocess.run([tool("ip", "iproute2"), "link", "set", "lo", state], check=True)


async def main() -> None:
    """Print what happens as JSON."""
    transport.SILENT_SECONDS = SILENT_SECONDS
    set_network("up")
    server, begun = Peer(), threading.Event()
    programs = await serve(server.program, "127.0.0.1", 0, ping_interval=None)
    streams = await asyncio.start_server(server.stream, "127.0.0.1", 0)
    ports = [each.sockets[0].getsockname()[1] for each in (programs, streams)]
    await late(ports[0])
    streaming = asyncio.create_task(asyncio.to_thread(streamed, ports[1], begun))
    session = await opened(ports[0], "program")
    assert await session.read()
    await asyncio.to_thread(begun.wait)
    set_network("down")
    down = time.monotonic()
    texts = {"exec": await ended(session), "stream": await streaming}
    print(json.dumps({**texts, "late": server.received, "seconds": time.monotonic() - down}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
