"""A client of the standard gRPC health protocol (grpc.health.v1): one unary call over HTTP/2 without TLS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from reconciler.engines.host.probes.connection import HOST
from reconciler.engines.host.probes.http import AGENT
from reconciler.engines.host.probes.response import CLOSED, ProbeError

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.events import Event

STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

REQUEST = b"\x00\x00\x00\x00\x00"
"""A HealthCheckRequest for the whole server is an empty message: not compressed, length 0."""

READ = 65_536
ANSWER = 65_536
"""The largest valid answer to a health check, in bytes."""


async def check_health(port: int) -> str:
    """The status that the server at ``port`` reports; ``SERVING`` is good (docs/platform/workload.md#probes).

    Raises ProbeError and OSError; has no timeout.
    """
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        return await _call_server(reader, writer, port)
    finally:
        writer.transport.abort()


async def _call_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> str:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import H2Error

    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    try:
        connection.initiate_connection()
        connection.send_headers(1, _make_headers(port))
        connection.send_data(1, REQUEST, end_stream=True)
        writer.write(connection.data_to_send())
        answer = _Answer()
        while not answer.over:
            received = await reader.read(READ)
            if not received:
                raise ProbeError(CLOSED)
            answer.take(connection, connection.receive_data(received))
            writer.write(connection.data_to_send())
    except H2Error:
        raise ProbeError("no HTTP/2 answer") from None
    return answer.status()


def _make_headers(port: int) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", f"{HOST}:{port}"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", AGENT),
    ]


class _Answer:
    """The received part of an answer."""

    def __init__(self) -> None:
        self.over = False
        self._headers: dict[str, str] = {}
        self._body = b""

    def take(self, connection: H2Connection, events: list[Event]) -> None:
        """Add the content of ``events``, and let the server send more."""
        from h2.events import (
            ConnectionTerminated,
            DataReceived,
            ResponseReceived,
            StreamEnded,
            StreamReset,
            TrailersReceived,
        )

        for event in events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                self._headers |= {_decode_text(name): _decode_text(value) for name, value in event.headers or ()}
            elif isinstance(event, DataReceived):
                self._body += event.data or b""
                connection.acknowledge_received_data(event.flow_controlled_length or 0, 1)
            elif isinstance(event, StreamReset | ConnectionTerminated) and not self.over:
                raise ProbeError(CLOSED)
            self.over = self.over or isinstance(event, StreamEnded)
        if len(self._body) > ANSWER:
            raise ProbeError("too long an answer")

    def status(self) -> str:
        """The status in the answer. Raises ProbeError."""
        http = self._headers.get(":status", "")
        if http != "200":
            raise ProbeError(f"HTTP {http}")
        code = self._headers.get("grpc-status", "")
        if code != "0":
            raise ProbeError(f"gRPC code {code}" if code.isascii() and code.isdigit() else "no gRPC answer")
        number = serving_status(self._body)
        return STATUSES.get(number, str(number))


def _decode_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def serving_status(body: bytes) -> int:
    """The number in field 1 of the HealthCheckResponse in ``body``, a length-prefixed message; 0 without one.

    Raises ProbeError if ``body`` is no such message.
    """
    length = int.from_bytes(body[1:5], "big")
    if len(body) < 5 or body[0] != 0 or len(body) != 5 + length:
        raise ProbeError("no gRPC answer")
    message = memoryview(body)[5:]
    status = at = 0
    while at < len(message):
        tag, at = _decode_varint(message, at)
        if tag < 8:
            raise ProbeError("no gRPC answer")
        if tag & 7 == 0:
            value, at = _decode_varint(message, at)
            status = value if tag >> 3 == 1 else status
        else:
            at = _skip_field(message, at, tag & 7)
    if at != len(message):
        raise ProbeError("no gRPC answer")
    return status


def _decode_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ProbeError("no gRPC answer")


def _skip_field(message: memoryview, at: int, wire: int) -> int:
    """The offset of the next field after one of another type: 64 bits, 32 bits, or length-delimited."""
    if wire == 2:
        length, at = _decode_varint(message, at)
        return at + length
    if wire not in (1, 5):
        raise ProbeError("no gRPC answer")
    return at + (8 if wire == 1 else 4)
