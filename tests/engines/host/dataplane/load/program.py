"""A program that answers HTTP/1.1, HTTP/2, gRPC and WebSocket at $PORT, and ends as polite programs do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

PREFACE = b"PRI"
GOODBYE = b"bye\n"
"""The last line of the server in a WebSocket; it answers until the client closes."""
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
SERVICE_SECONDS = 0.005


class Program:
    """Answers with ``name``. It counts requests that it works on, and ends when none is left."""

    def __init__(self, name: str, seconds: float = SERVICE_SECONDS, alone: float = 0.0) -> None:
        self.name = name.encode()
        self.answered = 0
        self._seconds = seconds
        self._alone = alone
        """Seconds of each request in which it works on no other one."""
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0, address: str = "127.0.0.1") -> int:
        """Listen at ``port``, or at a free one; returns it."""
        self._server = await asyncio.start_server(self._serve, address, port, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    async def end(self) -> None:
        """Take no new connections, and return when the last request has its answer."""
        assert self._server is not None
        self._server.close()
        self._ending.set()
        await self._idle.wait()

    async def _work(self) -> None:
        await asyncio.sleep(self._seconds)
        time.sleep(self._alone)

    def _count(self, more: int) -> None:
        self._open += more
        self.answered += more < 0
        (self._idle.clear if self._open else self._idle.set)()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            start = await reader.readexactly(len(PREFACE))
            serve = self._serve_h2 if start == PREFACE else self._serve_h1
            await serve(start, reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _serve_h1(self, start: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = start + await reader.readuntil(b"\r\n\r\n")
            start = b""
            self._count(1)
            try:
                if b"upgrade: websocket" in head.lower():
                    await self._serve_socket(reader, writer)
                    return
                await self._work()
                more = b"Connection: close\r\n" if self._ending.is_set() else b""
                writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(self.name), self.name))
                await writer.drain()
            finally:
                self._count(-1)

    async def _serve_socket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Echo lines. A data plane sees nothing but bytes in a WebSocket, so there are no frames."""
        writer.write(SWITCH)

        async def leave() -> None:
            await self._ending.wait()
            writer.write(GOODBYE)

        leaving = asyncio.create_task(leave())
        try:
            while line := await reader.readline():
                writer.write(line)
        finally:
            leaving.cancel()

    async def _serve_h2(self, start: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        data = start
        answers: set[asyncio.Task[None]] = set()
        grpc: dict[int, bool] = {}
        while data:
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    grpc[event.stream_id] = ("content-type", "application/grpc") in list(event.headers)
                elif isinstance(event, DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    self._count(1)
                    answer = self._answer(connection, writer, event.stream_id, grpc.pop(event.stream_id))
                    answers.add(task := asyncio.create_task(answer))
                    task.add_done_callback(answers.discard)
            writer.write(connection.data_to_send())
            await writer.drain()
            data = await reader.read(65_536)

    async def _answer(self, connection: H2Connection, writer: asyncio.StreamWriter, stream: int, grpc: bool) -> None:
        try:
            await self._work()
            kind = "application/grpc" if grpc else "text/plain"
            connection.send_headers(stream, [(":status", "200"), ("content-type", kind)])
            connection.send_data(stream, self.name, end_stream=not grpc)
            if grpc:
                connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
            writer.write(connection.data_to_send())
            await writer.drain()
        finally:
            self._count(-1)


async def main() -> None:
    """Serve until SIGTERM."""
    name = sys.argv[1] if len(sys.argv) > 1 else str(os.getpid())
    program, ended = Program(name, alone=float(os.environ.get("ALONE", "0"))), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await program.start(int(os.environ["PORT"]), "0.0.0.0")  # requests come to a container by its own address
    await ended.wait()
    await program.end()


if __name__ == "__main__":
    asyncio.run(main())
