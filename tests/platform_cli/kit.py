"""The `platform` command against a real daemon, and a socket between them that notes the requests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import httpx2
import pytest
from httptools import HttpParserUpgrade, HttpRequestParser

from reconciler.daemon.api_process import SOCKET
from reconciler.platform_cli import command_line
from reconciler.platform_cli.main import run_command_line
from tests.support.git import File
from tests.support.sandbox import PATIENCE, DaemonProcess, DaemonSandbox, eventually

_BLOCK = 65_536


class RequestLines:
    """Adds ``METHOD TARGET`` of each request in a stream of bytes to ``found``, however the bytes are divided."""

    def __init__(self, found: list[str]) -> None:
        self._found = found
        self._target = b""
        self._parser: HttpRequestParser | None = HttpRequestParser(self)

    def feed(self, received: bytes) -> None:
        """Read on; nothing is noted after a request for another protocol."""
        if self._parser is not None:
            try:
                self._parser.feed_data(received)
            except HttpParserUpgrade:
                self._parser = None

    def on_url(self, part: bytes) -> None:
        """Keep a part of the target."""
        self._target += part

    def on_headers_complete(self) -> None:
        """Note the request."""
        assert self._parser is not None
        self._found.append(f"{self._parser.get_method().decode()} {self._target.decode()}")
        self._target = b""


class Relay:
    """Listens at ``path`` and passes bytes on to ``target``; ``requests`` are the request lines that went through."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.requests: list[str] = []
        self._passing: list[socket.socket] = []
        self._target = target
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no longer."""
        self._server.close()

    def cut(self) -> None:
        """End every connection."""
        for each in self._passing:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(str(self._target))
                self._passing += [client, server]
                lines = RequestLines(self.requests)
                threading.Thread(target=_pass_both_ways, args=(client, server, lines.feed), daemon=True).start()


def _pass_both_ways(client: socket.socket, server: socket.socket, note: Callable[[bytes], None]) -> None:
    """Pass bytes on until both sides have ended, and close them: a long test has more than a process may open."""
    back = threading.Thread(target=_pass, args=(server, client, None), daemon=True)
    back.start()
    _pass(client, server, note)
    back.join()
    client.close()
    server.close()


def _pass(source: socket.socket, sink: socket.socket, note: Callable[[bytes], None] | None) -> None:
    with contextlib.suppress(OSError):
        try:
            while received := source.recv(_BLOCK):
                if note is not None:
                    note(received)
                sink.sendall(received)
        finally:
            # Even if a request cannot be read: else both sides would wait.
            sink.shutdown(socket.SHUT_WR)


class PlatformHarness:
    """A daemon with the API, and the command of a user whose files are in ``home``."""

    def __init__(self, sandbox: DaemonSandbox, running: DaemonProcess, relay: Relay) -> None:
        self.sandbox = sandbox
        self.running = running
        self.relay = relay
        self.home = sandbox.path / "home"
        self.home.mkdir()
        self.environ = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "PLATFORM_ORG": "acme",
            "PLATFORM_ENDPOINT": f"unix://{relay.path}",
            "NO_COLOR": "",
            "EDITOR": "",
            "VISUAL": "",
            "TZ": "UTC",
            "DBUS_SESSION_BUS_ADDRESS": "",
        }

    def run(
        self, *words: str, text: str = "", environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end, in ``home``, with ``text`` as standard input.

        It runs in this process: a process of its own would cost more than most commands.
        """
        out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
        with pytest.MonkeyPatch.context() as patch:
            for name, stream in (("stdin", TextIOWrapper(BytesIO(text.encode()))), ("stdout", out), ("stderr", err)):
                patch.setattr(sys, name, stream)
            for name, value in {**self.environ, **(environ or {})}.items():
                patch.setenv(name, value)
            # A busy machine does not answer in the time that a user waits for a hint.
            patch.setattr(command_line, "COMPLETION_SECONDS", PATIENCE)
            patch.chdir(self.home)
            code = run_command_line(list(words))
        printed = [stream.buffer.getvalue().decode() for stream in (out, err) if not stream.flush()]
        return subprocess.CompletedProcess([*words], code, *printed)

    def wait_until_applied(self) -> None:
        """Return once the daemon has applied the newest commit."""
        newest = self.sandbox.repo.git("rev-parse", "main").strip()
        eventually(lambda: self.sandbox.applied(newest), "the newest commit is applied")


@contextlib.contextmanager
def harness(path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> Iterator[PlatformHarness]:
    """A ``PlatformHarness`` whose files are applied."""
    sandbox = DaemonSandbox(path, files, **({"api": {}} | settings))
    with sandbox.daemon() as running:
        link = sandbox.state / SOCKET
        eventually(lambda: _answers(link), "the API answers")
        # A path of a socket is short; its length is always the same, since it is in tables.
        relay = Relay(Path(f"/tmp/relay-{os.getpid():07}-{len(str(path)):03}.sock"), link)
        try:
            found = PlatformHarness(sandbox, running, relay)
            found.wait_until_applied()
            yield found
        finally:
            relay.close()
            relay.path.unlink()


def _answers(link: Path) -> bool:
    try:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(link))) as client:
            return client.get("http://api/readyz").status_code == 200
    except httpx2.TransportError:
        return False
