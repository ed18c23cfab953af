"""Who is at the other end of a local socket, as the kernel names it."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)
"""Room for the credentials of the sender, and for no descriptor that it may send."""


class Sender(NamedTuple):
    """The process that sent a datagram, and its user and group."""

    pid: int
    uid: int
    gid: int


def name_senders(receiver: socket.socket) -> None:
    """Let the kernel name the sender of each datagram; call it before ``receiver`` is bound."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def receive(receiver: socket.socket, size: int) -> tuple[bytes, Sender | None]:
    """The next datagram, of which at most ``size`` bytes are read, and its sender; None if the kernel names none.

    Raises BlockingIOError if there is none, and OSError.
    """
    data, ancillary, _flags, _address = receiver.recvmsg(size, _SPACE)
    for level, kind, content in ancillary:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            return data, Sender(*_CREDENTIALS.unpack(content))
    return data, None
