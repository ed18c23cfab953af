"""Connections of clients: bounded in number and in the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import struct
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

HEAD_SECONDS = 10.0
"""Seconds in which the head of a request must arrive, and each pause of its body must end."""
BODY_SECONDS = 60.0
"""Seconds in which the whole body of a request must arrive, however short its pauses are."""
WRITE_SECONDS = 30.0
"""Seconds in which a client must read something of a response that waits for it."""
MOST_CONNECTIONS = 1000
"""The most connections; each further one ends the one that has waited for a request, or the rest of it, the longest."""
MOST_HEAD = 32_768
"""Bytes of the longest head of a request."""

_REQUEST = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,40} [!-~]+ HTTP/1\.[01]\r\n")
"""The first line of a request, whatever its method."""


class Peer(NamedTuple):
    """The process at the other end of a unix socket, as the kernel names it."""

    pid: int
    uid: int
    gid: int


class Connections(ServerState):
    """All connections; those of which no whole request is being answered are ``waiting``, the longest ones first."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[ClientConnection, None] = {}


class ClientConnection(HttpToolsProtocol):
    """A connection of a client. A client that sends nothing, or a byte now and then, loses it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the client; make room by ending the longest idle connection."""
        super().connection_made(transport)
        self._head = 0
        self._in_head = True
        self._between = True
        self._line = b""
        self._body_ends = 0.0
        assert isinstance(self.server_state, Connections)
        self._waiting = self.server_state.waiting
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)
        self._waiting[self] = None
        self._stalled: asyncio.TimerHandle | None = None
        peer = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, "senders": {}}
        if peer is not None and peer.family == socket.AF_UNIX:
            self.app_state["peer"] = _get_peer_credentials(peer)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, received: bytes) -> None:
        """Read; what the parser keeps of an unfinished head is bounded too."""
        if self._in_head:
            self._head += len(received)
        if self._between and len(self._line) < MOST_HEAD:
            self._line += received
        super().data_received(received)
        if self._in_head and self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the head that are parsed."""
        self._between, self._line = False, b""
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of the head that are parsed."""
        self._measure(len(name) + len(value))
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        """The head of a request begins; its deadline runs since the connection or the response before."""
        super().on_message_begin()
        self._parsed = 0
        self._in_head = True

    def on_headers_complete(self) -> None:
        """From here on, the deadline is for each pause of the body."""
        self._in_head, self._head = False, 0
        super().on_headers_complete()
        self._restart_deadline()
        self._body_ends = self.loop.time() + BODY_SECONDS

    def on_body(self, body: bytes) -> None:
        """A part of the body arrived in time."""
        super().on_body(body)
        self._restart_deadline(self._body_ends)

    def on_message_complete(self) -> None:
        """The request arrived; the response may take its time."""
        super().on_message_complete()
        self._between = True
        self._end_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; a request with a method that HTTP does not have is 501 (RFC 9110, 9.1)."""
        if not _REQUEST.match(self._line):
            super().send_400_response(msg)
            return
        text = b"There is no such method."
        head = b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        self.transport.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """The connection becomes a WebSocket; the library for it is loaded by the first one."""
        from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

        self._end_deadline()
        self.ws_protocol_class = WebSocketsSansIOProtocol
        super().handle_websocket_upgrade()

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def on_response_complete(self) -> None:
        """The next request has a deadline of its own; uvicorn ends the connection if none begins."""
        super().on_response_complete()
        self._restart_deadline()

    def pause_writing(self) -> None:
        """The client reads more slowly than the response comes; if it reads nothing, it loses the connection."""
        super().pause_writing()
        self._stalled = self.loop.call_later(WRITE_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._end_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline too."""
        self._end_deadline()
        self._end_stall()
        super().connection_lost(exc)

    def _measure(self, size: int) -> None:
        """Refuse a head that is too long; the parser reports any error of its callbacks as one of the request."""
        self._parsed += size
        if self._parsed > MOST_HEAD:
            raise ValueError("the head of the request is too long")

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()

    def _end_deadline(self) -> None:
        self._deadline.cancel()
        self._waiting.pop(self, None)

    def _restart_deadline(self, latest: float = math.inf) -> None:
        self._end_deadline()
        if not self.transport.is_closing():  # a response may end after its connection, which is never lost twice
            self._waiting[self] = None
        self._deadline = self.loop.call_at(min(self.loop.time() + HEAD_SECONDS, latest), self._give_up)

    def _give_up(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        """End the connection that has waited the longest; an unfinished body keeps no other client out."""
        longest = next(iter(self._waiting))
        # It is lost a moment later; until then, others that come must not choose it again.
        del self._waiting[longest]
        longest.transport.abort()


def _get_peer_credentials(link: Any) -> Peer:
    return Peer(*struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
