"""Processes of the reconciler: forked from one that has imported everything, or begun afresh.

Both are processes of their own, with the same arguments, streams, environment and signals. The imports of a fresh one
cost more than most tests; those that are about a start, its imports or its memory ask for ``fresh``.
"""

from __future__ import annotations

import atexit
import functools
import marshal
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.support import cpu, server_offer
from tests.support.fork_server import LIMIT

ROOT = Path(__file__).parents[2]
PORTS = range(12_000, 19_000)
"""Below the ports that daemons give to replicas, and those that Linux gives to connections and to who asks for any."""

FIXED = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_")
"""Variables that an interpreter obeys only when it starts."""


class Forked:
    """A forked process, in the manner of ``subprocess.Popen``."""

    def __init__(self, server: _Server, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None and self._ended(0):
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not self._ended(timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """End it in peace."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> bool:
        """Whether it ends within ``timeout`` seconds; unlike select, poll takes any number of open files."""
        waiting = select.poll()
        waiting.register(self._handle, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def _reap(self) -> None:
        self.returncode = self._server.ask({"wait": self.pid})["code"]
        os.close(self._handle)


class _Server:
    """The process that forks, for this test process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if server_offer.current is None:
            self._link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.environ = dict(os.environ)
            command = [sys.executable, "-m", "tests.support.fork_server", str(other.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])
            other.close()
        else:
            self._link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.environ = server_offer.current.environ
            self._link.connect(server_offer.current.address)
            cpu.COUNTED.add(int(self._link.recv(LIMIT)))
        atexit.register(self._end)

    def _end(self) -> None:
        self._link.close()
        if self._process is not None:
            self._process.wait()  # so that what it and its children used is counted

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """The answer to one request."""
        message = marshal.dumps(request)
        assert len(message) < LIMIT
        with self._lock:
            socket.send_fds(self._link, [message], descriptors)
            answer: dict[str, Any] = marshal.loads(self._link.recv(LIMIT))
        return answer


@functools.cache
def _server() -> _Server:
    return _Server()


def forkable(environ: Mapping[str, str]) -> bool:
    """Whether a forked process obeys ``environ`` as a fresh one does."""
    names = {name for name in environ.keys() | _server().environ.keys() if name.startswith(FIXED)}
    return all(environ.get(name) == _server().environ.get(name) for name in names)


def start(
    words: Sequence[str],
    out: IO[Any],
    err: IO[Any],
    *,
    cwd: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    user: int | None = None,
    groups: Sequence[int] = (),
    fresh: bool = False,
    text: str = "",
) -> Forked | subprocess.Popen[bytes]:
    """Start ``python WORDS`` (``-m MODULE …`` or ``-c CODE …``) with ``environ`` laid over this process's.

    ``user`` and ``groups`` are numbers; another user needs a forked process, which may import nothing more. ``text`` is
    its standard input.
    """
    variables = {**os.environ, **(environ or {})}
    with tempfile.TemporaryFile() as typed:
        typed.write(text.encode())
        typed.seek(0)
        if fresh or not forkable(variables):
            assert user is None
            command = [sys.executable, *words]
            return subprocess.Popen(command, cwd=cwd, env=variables, stdin=typed, stdout=out, stderr=err)
        request = {"words": [*words], "cwd": str(cwd), "environ": variables, "user": user, "groups": [*groups]}
        answer = _server().ask(request, [typed.fileno(), out.fileno(), err.fileno()])
    return Forked(_server(), answer["pid"])


def run(words: Sequence[str], *, timeout: float = 60.0, **how: Any) -> subprocess.CompletedProcess[str]:
    """``python WORDS`` to its end, with the arguments of ``start``; raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(words, out, err, **how)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        printed = [os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0).decode() for each in (out, err)]
    return subprocess.CompletedProcess([*words], code, *printed)


def reconciler(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """``reconciler WORDS`` to its end, with the arguments of ``start``."""
    return run(["-m", "reconciler.cli", *words], **how)


def free_ports(count: int) -> list[int]:
    """Numbers of ports of 127.0.0.1 where nothing listens now.

    None is one that the kernel or a daemon gives to others until a test binds it. Tests of other processes ask as well,
    and some set the seed of the numbers of this one.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(ports) == count:
            return ports
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    raise AssertionError(f"fewer than {count} ports are free")
