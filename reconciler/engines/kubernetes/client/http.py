"""Requests over HTTP/1.1 with short answers: connections to one API server, which requests use in turn.

An apply of 2,000 workloads is more than 10,000 requests, and a client for everything takes most of its time for each.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httptools
import httpx2

IDLE_SECONDS = 60.0
"""Seconds after which an unused connection is not used again: the API server ends it after 90."""

_UNAUTHORIZED = 401
_FIRST_FINAL = 200
_SAFE = "/:@!$&'()*+,;=~"


class Answer(NamedTuple):
    """The answer to a request; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class _Message(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    content: bytes


class HttpPool:
    """Connections to ``server``, which log in by ``auth``; ``context`` is for an address with https.

    A connection is there within ``seconds``, and so is each part of an answer.
    """

    def __init__(self, server: str, context: ssl.SSLContext, auth: httpx2.Auth | None, seconds: float) -> None:
        self._url = httpx2.URL(server)
        self._context = context if self._url.scheme == "https" else None
        self._auth = auth
        self._seconds = seconds
        self._prefix = self._url.raw_path.rstrip(b"/")
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """The answer to a request, which is sent once more with new credentials if the first are refused.

        Raises OSError if there is none, and ConfigError for unusable credentials.
        """
        target = quote(path, safe=_SAFE) + (f"?{urlencode(params)}" if params else "")
        message = _Message(method, target, dict(headers or {}), content or b"")
        if self._auth is None:
            return await self._exchange(message)
        async with aclosing(self._auth.async_auth_flow(httpx2.Request(method, self._url))) as flow:
            request = await anext(flow)
            while True:
                message.headers["Authorization"] = request.headers["Authorization"]
                answer = await self._exchange(message)
                if answer.status != _UNAUTHORIZED:
                    return answer
                try:
                    request = await flow.asend(httpx2.Response(answer.status, request=request))
                except StopAsyncIteration:
                    return answer

    def close(self) -> None:
        """End all connections; requests that are under way get no answer."""
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    async def _exchange(self, message: _Message) -> Answer:
        connection = await self._take_connection()
        self._busy.add(connection)
        try:
            return await connection.exchange(self._encode(message), self._seconds)
        finally:
            self._busy.discard(connection)
            if connection.usable:
                self._idle.append(connection)
            else:
                # What is left of an answer must not become a part of the next one.
                connection.abort()

    async def _take_connection(self) -> _Connection:
        loop = asyncio.get_running_loop()
        # The one that was used last goes first, so that those which are not needed grow old.
        while self._idle:
            idle = self._idle.pop()
            if idle.usable and loop.time() - idle.used < IDLE_SECONDS:
                return idle
            idle.abort()
        port = self._url.port or (80 if self._context is None else 443)
        try:
            async with asyncio.timeout(self._seconds):
                _, connection = await loop.create_connection(_Connection, self._url.host, port, ssl=self._context)
        except TimeoutError:
            raise TimeoutError(f"no connection within {self._seconds:.0f} s") from None
        return connection

    def _encode(self, message: _Message) -> bytes:
        lines = [
            b"%b %b%b HTTP/1.1" % (message.method.encode(), self._prefix, message.target.encode()),
            b"Host: " + self._url.netloc,
            b"User-Agent: reconciler",
            b"Accept-Encoding: gzip",
            *(f"{name}: {value}".encode() for name, value in message.headers.items()),
        ]
        if message.content:
            lines.append(b"Content-Length: %d" % len(message.content))
        return b"\r\n".join([*lines, b"", message.content])


class _Connection(asyncio.Protocol):
    """A connection, which has one request at a time. Its transport and its parser call the other public methods."""

    def __init__(self) -> None:
        self.used = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._read_at = 0.0
        self._timer: asyncio.TimerHandle
        self._over = False

    @property
    def usable(self) -> bool:
        """Whether it takes another request."""
        return not self._over and self._waiting is None

    async def exchange(self, request: bytes, seconds: float) -> Answer:
        """The answer to ``request``. Raises OSError if there is none, or if nothing of it comes for ``seconds``."""
        assert self._transport is not None
        waiting: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting = waiting
        self._read_at = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._check_time, seconds)
        self._transport.write(request)
        try:
            answer = await waiting
        finally:
            self._timer.cancel()
        # Without an answer it is not usable again.
        self._waiting = None
        self.used = self._loop.time()
        return answer

    def _check_time(self, seconds: float) -> None:
        left = self._read_at + seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_time, seconds)
        else:
            self._fail(TimeoutError(f"no part of an answer for {seconds:.0f} s"))

    def abort(self) -> None:
        """End it at once."""
        self._over = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, part: bytes, /) -> None:
        """A part of an answer is there."""
        self._read_at = self._loop.time()
        if self._waiting is None:
            self._fail(ConnectionError("an answer to no request"))
            return
        try:
            self._parser.feed_data(part)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._fail(exc or ConnectionError("the connection ended before the answer did"))

    def on_message_begin(self) -> None:
        """An answer begins."""
        self._headers, self._parts = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A part of the content."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The answer is complete, or announces another one."""
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL or self._waiting is None or self._waiting.done():
            return
        self._over = self._over or not self._parser.should_keep_alive()
        content = b"".join(self._parts)
        if self._headers.get("content-encoding") == "gzip":
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                self._fail(ConnectionError(f"no gzip: {error}"))
                return
        self._waiting.set_result(Answer(status, self._headers, content))

    def _fail(self, error: Exception) -> None:
        self._over = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
