"""Connections of clients: bounded in number and in the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Seconds in which the head of a request must arrive, and each pause of its body must end."""
MOST_CONNECTIONS = 1000
"""The most connections; each further one ends the connection that has been idle for the longest time."""
MOST_HEAD = 32_768
"""Bytes of the longest head of a request."""


class Peer(NamedTuple):
    """The process at the other end of a unix socket, as the kernel names it."""

    pid: int
    uid: int
    gid: int


class Connection(H11Protocol):
    """A connection of a client. A client that sends nothing, or a byte now and then, loses it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the client; make room by ending the longest idle connection."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            self.app_state = {**self.app_state, "peer": _peer(peer)}
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, received: bytes) -> None:
        """Read; the deadline is for the whole head, and for each pause of a body."""
        super().data_received(received)
        if self.conn.their_state is h11.SEND_BODY:
            self._restart_deadline()
        elif self.conn.their_state is not h11.IDLE:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        """The next request has a deadline of its own; uvicorn ends the connection if none begins."""
        super().on_response_complete()
        self._restart_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline too."""
        self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _restart_deadline(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        others = (each for each in self.connections if isinstance(each, Connection) and each is not self)
        idle = min((each for each in others if each.is_idle), key=lambda each: each._deadline.when(), default=self)
        idle.transport.abort()


def _peer(link: Any) -> Peer:
    return Peer(*struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
