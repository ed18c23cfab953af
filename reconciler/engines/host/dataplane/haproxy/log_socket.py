"""The socket for lines of HAProxy, which believes no other process.

A workload may run as any user, also as that of HAProxy. So the kernel names the sender of each line, and only the
process of HAProxy and its workers count.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import OWN, decode_key, decode_name
from reconciler.engines.host.dataplane.haproxy.discovery import MasterProcess
from reconciler.engines.host.dataplane.haproxy.rendering.pages import MESSAGES
from reconciler.engines.host.dataplane.protocol import LatencyListener
from reconciler.engines.host.runtimes import procfs
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.private_files import name_senders, receive_datagram
from reconciler.reasons import Reason

LONGEST = 2048
BUFFER = 1 << 20
"""Bytes of lines that may wait; HAProxy drops further ones, it never waits."""
AT_ONCE = 500
"""Lines that are read before the event loop does other work."""
MOST_SENDERS = 256
"""Processes of HAProxy that are remembered: each reload brings one."""
_HOLD, _REQUEST = "hold", "request"
_TIMES_END = 7
"""The method, the id and the path are the words from here on."""
_NO_ID = "-"
_NO_SERVER = "<NOSRV>"
_NUMBER = re.compile(r"-1|[0-9]{1,9}")
"""-1 stands for a phase that the request did not reach. No request takes a billion milliseconds."""


class Senders:
    """Who may send lines: the users ``users``, and of their processes only the master and its workers."""

    def __init__(self, users: Container[int], find_master: Callable[[], int | None]) -> None:
        self._users = users
        self._find_master = find_master
        self._proven: dict[int, MasterProcess] = {}

    def admit(self, pid: int, user: int) -> bool:
        """Whether the process ``pid`` of ``user`` is HAProxy."""
        if pid <= 0 or user not in self._users:
            return False
        proven = self._proven.get(pid)
        if proven is not None and proven.alive:
            return True
        # Another process may have its number by now.
        self._forget(pid)
        return self._prove(pid)

    def close(self) -> None:
        """Forget all processes."""
        for pid in list(self._proven):
            self._forget(pid)

    def _prove(self, pid: int) -> bool:
        try:
            process = MasterProcess(pid)
        except ProcessLookupError:
            return False
        if not self._is_haproxy(process):
            process.close()
            return False
        while len(self._proven) >= MOST_SENDERS:
            self._forget(next(iter(self._proven)))
        self._proven[pid] = process
        return True

    def _is_haproxy(self, sender: MasterProcess) -> bool:
        process_info = procfs.find_process(sender.pid)
        if process_info is None:
            # /proc hides a HAProxy of its own unit, which has a capability that the daemon lacks: the user decides.
            return sender.alive
        return self._find_master() in (sender.pid, process_info.parent)

    def _forget(self, pid: int) -> None:
        if (process := self._proven.pop(pid, None)) is not None:
            process.close()


class LogSocket:
    """Reads lines at ``path``, a short path.

    ``is_served`` returns whether a workload is served here; lines about others count for nothing. ``on_hold`` is called
    with the workload of a request that waits, ``on_error`` with the workload of a request that HAProxy answered itself,
    and a line about it.
    """

    def __init__(
        self, is_served: Callable[[Key], bool], on_hold: Callable[[Key], None], on_error: Callable[[Key, str], None]
    ) -> None:
        self._is_served = is_served
        self._on_hold = on_hold
        self._on_error = on_error
        self._listeners: list[LatencyListener] = []
        self._socket: socket.socket | None = None
        self._senders = Senders((), lambda: None)

    def listen(self, listener: LatencyListener) -> None:
        """Call ``listener`` for each request that a replica answered."""
        self._listeners.append(listener)

    def open(self, path: str, user: int | None, find_master: Callable[[], int | None]) -> None:
        """Listen at ``path``. ``user`` is that of HAProxy, None for the daemon's; ``find_master`` returns its process.

        Raises EngineError.
        """
        own = os.geteuid()
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            Path(path).unlink(missing_ok=True)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            name_senders(receiver)
            # Before bind, so that the file never exists with wider rights.
            os.fchmod(receiver.fileno(), 0o600)
            receiver.bind(path)
            if user is not None:
                os.chown(path, user, -1, follow_symlinks=False)
        except OSError as error:
            receiver.close()
            message = f"the log socket of HAProxy cannot be opened: {error.strerror}"
            raise EngineError(message, reason=Reason.PROXY_FAILED) from None
        self._senders = Senders((own,) if user is None else (own, user), find_master)
        self._socket = receiver
        asyncio.get_running_loop().add_reader(receiver.fileno(), self._read, receiver)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._senders.close()

    def _read(self, receiver: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                line, sender = receive_datagram(receiver, LONGEST)
                if sender is None or not self._senders.admit(sender.pid, sender.uid):
                    continue
                if (parsed := parse_line(line)) is not None and self._is_served(parsed.key):
                    self._take(parsed)

    def _take(self, parsed: ProxyLogLine) -> None:
        if parsed.waits:
            self._on_hold(parsed.key)
        if parsed.error:
            self._on_error(parsed.key, parsed.error)
        for listener in self._listeners if parsed.replica else ():
            listener(parsed.key, parsed.replica, parsed.milliseconds)


class ProxyLogLine(NamedTuple):
    """What a line says of the workload ``key``.

    ``waits``: a request begins to wait. ``error`` is the line for its log about a request that HAProxy answered itself.
    ``replica`` has answered after ``milliseconds``. Both texts can be "".
    """

    key: Key
    waits: bool = False
    error: str = ""
    replica: str = ""
    milliseconds: float = 0.0


def parse_line(line: bytes) -> ProxyLogLine | None:
    """What ``line`` says; None if it is none of HAProxy, or about no workload. Raises nothing, whatever the bytes."""
    try:
        words = line.decode().split()
        if words[:1] == [_HOLD]:
            return ProxyLogLine(decode_key(words[1]), waits=True)
        return _parse_request(words) if words[:1] == [_REQUEST] else None
    except (ValueError, IndexError):
        return None


def _parse_request(words: list[str]) -> ProxyLogLine | None:
    """Raises ValueError or IndexError for what HAProxy does not write."""
    if not words[1] or words[1].startswith("_"):
        return None  # A backend of no workload.
    key, replica, milliseconds = decode_key(words[1]), "", 0.0
    status, *times = map(_parse_number, words[3:_TIMES_END])
    method, *name, path = words[_TIMES_END:]
    error = ""
    if name != [_NO_ID] and status in MESSAGES:
        error = f"{status} {method} {path}: {MESSAGES[status]} (request {' '.join(name)})"
    if words[2] not in OWN and words[2] != _NO_SERVER and min(times) >= 0:
        replica, milliseconds = decode_name(words[2]), float(sum(times))
    return ProxyLogLine(key, error=error, replica=replica, milliseconds=milliseconds)


def _parse_number(word: str) -> int:
    if _NUMBER.fullmatch(word) is None:
        raise ValueError(word)
    return int(word)
