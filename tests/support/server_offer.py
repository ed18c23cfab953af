"""One process of all workers that forks their servers (`fork_server`), so that it alone imports the reconciler."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
SET_PARENT_DEATH_SIGNAL = 1


class ServerOffer:
    """A process that forks a server for each worker: it begins when the first worker needs one."""

    def __init__(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind("")  # the kernel chooses a name
        listener.listen(64)
        self.environ = dict(os.environ)
        self.address = listener.getsockname()
        self._pid = os.fork()
        if not self._pid:
            _become_server(listener)
        listener.close()

    def end(self) -> None:
        """End it, once all servers that it forked have ended."""
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)


def _become_server(listener: socket.socket) -> NoReturn:
    """Wait in a forked process for the first connection, then run the server; end with the process that forked."""
    try:
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.chdir(ROOT)
        select.select([listener], [], [])
        listener.set_inheritable(True)
        os.execv(sys.executable, [sys.executable, "-m", "tests.support.fork_server", str(listener.fileno())])
    finally:
        os._exit(1)


current: ServerOffer | None = None
"""That of the process that forked this worker."""


@contextlib.contextmanager
def offered_servers() -> Iterator[None]:
    """Workers that this process forks have servers that are forked from one."""
    global current
    current = ServerOffer()
    try:
        yield
    finally:
        current.end()
        current = None
