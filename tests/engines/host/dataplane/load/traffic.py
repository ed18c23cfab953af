"""Clients that send requests at a steady rate in one form each, and count those without a right answer."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from tests.engines.host.dataplane.load.program import GOODBYE

PATIENCE = 60.0
FRAME_HEAD, GOAWAY, REFUSED = 9, 7, 7
"""Bytes before the body of a frame, a type of frames, and the reason of a reset stream that was not processed."""
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Sent(NamedTuple):
    """When a request was sent, and for how long it had no answer."""

    at: float
    seconds: float


class Tally:
    """What came of the requests of one form: how many were answered, and the losses in words."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.answered = 0
        self.slowest = 0.0
        self.lost: list[str] = []
        self.repeated = 0
        """Requests that the server named as not processed, so that clients of HTTP/2 send them again."""

    def answer(self, began: float) -> None:
        """Count an answer to a request that was sent then."""
        self.answered += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def lose(self, why: str) -> None:
        """Count a request without a right answer."""
        self.lost.append(f"{time.monotonic():.2f} {why}")

    def __str__(self) -> str:
        return f"{self.form}: {self.answered} answered, {len(self.lost)} lost, slowest {self.slowest:.2f} s"


class _GoneError(Exception):
    """A connection ended before an answer."""


class H1:
    """Requests of HTTP/1.1, one after the other, on one connection or each on its own: for ``host``, as H2."""

    def __init__(self, address: str, *, keep: bool, host: str = "web", context: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._host = host
        self._context = context
        self._keep = keep
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, tally: Tally) -> None:
        """Send one request and wait for its answer."""
        began = time.monotonic()
        try:
            status = await self._request()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            tally.lose(repr(error))
            return
        tally.answer(began) if status == 200 else tally.lose(f"status {status}")

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _request(self) -> int:
        reader, writer = self._streams = self._streams or await _connect(self._address, self._context, self._host)
        more = b"" if self._keep else b"Connection: close\r\n"
        writer.write(b"GET / HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (self._host.encode(), more))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
        if not self._keep or b"connection: close" in head:
            self.close()
        return int(head.split()[1])


class Socket:
    """Messages in a WebSocket, each answered by the same line. It is opened again after the server's goodbye.

    It is opened for ``host``, as H2.
    """

    def __init__(self, address: str, host: str = "web", context: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._host = host
        self._context = context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, tally: Tally) -> None:
        """Send one message and wait for its echo."""
        began, line = time.monotonic(), b"message %d\n" % tally.answered
        try:
            reader, writer = self._streams = self._streams or await self._open()
            writer.write(line)
            leaves = False
            while (raw := await reader.readline()) != line:
                leaves = leaves or raw == GOODBYE
                if raw != GOODBYE:
                    raise _GoneError(f"{raw!r} in place of an echo")
        except (OSError, _GoneError, asyncio.IncompleteReadError) as error:
            self.close()
            tally.lose(repr(error))
            return
        tally.answer(began)
        if leaves:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await _connect(self._address, self._context, self._host)
        writer.write(UPGRADE % self._host.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head:
            writer.close()
            raise _GoneError(f"status {head.split()[1].decode()} for an upgrade")
        return reader, writer


class _Connection:
    """A connection of HTTP/2, with the requests that have no answer yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.usable = True
        self._reader = reader
        self._writer = writer
        self._state = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._waiting: dict[int, asyncio.Future[dict[str, str]]] = {}
        self._found: dict[int, dict[str, str]] = {}
        self._state.initiate_connection()
        self._task = asyncio.create_task(self._read())

    async def ask(self, headers: list[tuple[str, str]]) -> dict[str, str]:
        """The headers and trailers of the answer to one request. Raises _GoneError, _RepeatError."""
        answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        try:
            stream = self._state.get_next_available_stream_id()
            self._state.send_headers(stream, headers, end_stream=True)
        except ProtocolError:
            self.usable = False
            raise _RepeatError from None
        self._waiting[stream], self._found[stream] = answer, {}
        self._writer.write(self._state.data_to_send())
        return await answer

    def close(self) -> None:
        """Close it."""
        self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        try:
            with suppress(OSError, ProtocolError, asyncio.IncompleteReadError):
                while True:
                    head = await self._reader.readexactly(FRAME_HEAD)
                    body = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] == GOAWAY:
                        self._leave(int.from_bytes(body[:4], "big") & 0x7FFF_FFFF)
                        continue
                    for event in self._state.receive_data(head + body):
                        self._take(event)
                    self._writer.write(self._state.data_to_send())
        finally:
            self.usable = False
            for stream in [*self._waiting]:
                self._fail(stream, _GoneError("the connection ended"))
            self._writer.close()

    def _take(self, event: object) -> None:
        if isinstance(event, (ResponseReceived, TrailersReceived)):
            self._found[event.stream_id].update((str(name), str(value)) for name, value in event.headers)
        elif isinstance(event, DataReceived):
            self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            found = self._found.pop(event.stream_id)
            self._waiting.pop(event.stream_id).set_result(found)
        elif isinstance(event, StreamReset):
            refused = event.error_code == REFUSED
            self._fail(event.stream_id, _RepeatError() if refused else _GoneError(f"reset {event.error_code}"))

    def _leave(self, last_stream: int) -> None:
        """The server takes no more requests. The library would refuse its answers to the open ones from now on."""
        self.usable = False
        for stream in [each for each in self._waiting if each > last_stream]:
            self._fail(stream, _RepeatError())

    def _fail(self, stream: int, error: Exception) -> None:
        waiting = self._waiting.pop(stream, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)


class _RepeatError(Exception):
    """The server has not processed a request and says so: clients send it again."""


class H2:
    """Requests of HTTP/2, or of gRPC, many at once on one connection: for ``host``, with TLS by ``context``."""

    def __init__(
        self, address: str, *, grpc: bool = False, host: str = "web", context: ssl.SSLContext | None = None
    ) -> None:
        self._address = address
        self._host = host
        self._context = context
        more = [("content-type", "application/grpc"), ("te", "trailers")] if grpc else []
        self._headers = [
            (":method", "POST" if grpc else "GET"),
            (":path", "/"),
            (":scheme", "https" if context else "http"),
            (":authority", host),
            *more,
        ]
        self._grpc = grpc
        self._connection: _Connection | None = None
        self._former: list[_Connection] = []
        self._opening = asyncio.Lock()

    async def ask(self, tally: Tally) -> None:
        """Send one request and wait for its answer."""
        began = time.monotonic()
        for _ in range(5):
            try:
                headers = await (await self._usable()).ask(self._headers)
            except _RepeatError:
                tally.repeated += 1
            except (OSError, _GoneError) as error:
                tally.lose(repr(error))
                return
            else:
                right = headers.get(":status") == "200" and (not self._grpc or headers.get("grpc-status") == "0")
                tally.answer(began) if right else tally.lose(str(headers))
                return
        tally.lose("refused five times")

    async def _usable(self) -> _Connection:
        async with self._opening:
            if self._connection is None or not self._connection.usable:
                if self._connection is not None:
                    self._former.append(self._connection)
                self._connection = _Connection(*await _connect(self._address, self._context, self._host))
            return self._connection

    def close(self) -> None:
        """Close the connections."""
        for each in (*self._former, self._connection):
            if each is not None:
                each.close()


async def _connect(
    address: str, context: ssl.SSLContext | None = None, name: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    if context is None:
        return await asyncio.open_connection(host, int(port))
    return await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)


Client = H1 | H2 | Socket
FORMS: dict[str, Callable[[str], Client]] = {
    "HTTP/1.1, keep-alive": lambda address: H1(address, keep=True),
    "HTTP/1.1, a connection each": lambda address: H1(address, keep=False),
    "HTTP/2": H2,
    "gRPC": lambda address: H2(address, grpc=True),
    "WebSocket": Socket,
}


async def under_load(
    addresses: dict[str, str],
    rate: float,
    story: Callable[[], Awaitable[None]],
    clients: int = 4,
    forms: Mapping[str, Callable[[str], Client]] = FORMS,
) -> list[Tally]:
    """What came of ``rate`` requests a second to ``addresses``, by form, while ``story`` goes on.

    Each of ``forms`` has its ``clients``; one that waits for an answer sends the requests that were due in between
    afterwards.
    """
    tallies, done = [Tally(form) for form in addresses], asyncio.Event()
    interval = len(addresses) * clients / rate

    async def send(client: Client, tally: Tally, delay: float) -> None:
        begin, count = time.monotonic() + delay, 0
        while not done.is_set():
            count += 1
            await asyncio.sleep(begin + count * interval - time.monotonic())
            try:
                async with asyncio.timeout(PATIENCE):
                    await client.ask(tally)
            except TimeoutError:
                tally.lose(f"no answer in {PATIENCE:g} s")
        client.close()

    async with asyncio.TaskGroup() as group:
        for tally in tallies:
            for number in range(clients):
                client = forms[tally.form](addresses[tally.form])
                group.create_task(send(client, tally, interval * number / clients))
        try:
            await story()
        finally:
            done.set()
    return tallies
