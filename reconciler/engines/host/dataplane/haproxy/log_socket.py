"""The socket for lines of HAProxy: when a request begins to wait, and for each request whose latency is measured."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.dataplane.haproxy.config import SELF, decode_key, decode_name
from reconciler.engines.host.dataplane.haproxy.rendering.pages import MESSAGES
from reconciler.engines.host.dataplane.protocol import LatencyListener
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

LONGEST = 2048
BUFFER = 1 << 20
"""Bytes of lines that may wait; HAProxy drops further ones, it never waits."""
_TIMES_END = 7
"""The method, the id and the path are the words from here on."""
_NO_ID = "-"
AT_ONCE = 500
"""Lines that are read before the event loop does other work."""


class LogSocket:
    """Reads lines at ``path``, a short path.

    ``on_hold`` is called with the workload of a request that waits, ``on_error`` with the workload of a request that
    HAProxy answered itself, and a line about it.
    """

    def __init__(self, on_hold: Callable[[Key], None], on_error: Callable[[Key, str], None]) -> None:
        self._on_hold = on_hold
        self._on_error = on_error
        self._listeners: list[LatencyListener] = []
        self._socket: socket.socket | None = None

    def listen(self, listener: LatencyListener) -> None:
        """Call ``listener`` for each request that a replica answered."""
        self._listeners.append(listener)

    def open(self, path: str, *, shared: bool) -> None:
        """Listen at ``path``; ``shared``: HAProxy runs as another user. Raises EngineError."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            Path(path).unlink(missing_ok=True)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            found.bind(path)
            Path(path).chmod(0o666 if shared else 0o600)
        except OSError as error:
            found.close()
            message = f"the log socket of HAProxy cannot be opened: {error.strerror}"
            raise EngineError(message, reason=Reason.PROXY_FAILED) from None
        self._socket = found
        asyncio.get_running_loop().add_reader(found.fileno(), self._read, found)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self, found: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                self._take(found.recv(LONGEST).decode(errors="replace").split())

    def _take(self, words: list[str]) -> None:
        with suppress(ValueError, IndexError):
            if words[0] == "hold":
                self._on_hold(decode_key(words[1]))
                return
            if words[0] != "request":
                return
            method, *name, path = words[_TIMES_END:]
            if name != [_NO_ID] and int(words[3]) in MESSAGES and not words[1].startswith("_"):
                text = f"{words[3]} {method} {path}: {MESSAGES[int(words[3])]} (request {' '.join(name)})"
                self._on_error(decode_key(words[1]), text)
            if words[2] not in (SELF, "<NOSRV>"):
                times = [int(each) for each in words[4:_TIMES_END]]
                # -1 stands for a phase that the request did not reach.
                if min(times) >= 0:
                    for listener in self._listeners:
                        listener(decode_key(words[1]), decode_name(words[2]), float(sum(times)))
