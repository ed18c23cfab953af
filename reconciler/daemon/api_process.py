"""Runs the HTTP API in a process of its own: neither its load nor a fault in it ever delays the loop.

The daemon opens the addresses, so that clients wait, and are not refused, while the process restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from reconciler.daemon.measurements import Measurements, encode_beat
from reconciler.daemon.wake import address_of
from reconciler.logs import log
from reconciler.private_files import remove_own
from reconciler.settings import Settings
from reconciler.tasks import cancel_and_wait, wait_or_kill

SOCKET = "api.sock"
"""The socket in the state directory; the kernel names the user at its other end."""
BEAT_SECONDS = 5.0
"""Seconds between two messages to the process: each has measurements, and proves that the daemon's event loop turns."""
RETRY = 10.0
"""Seconds until the next attempt to listen at an address that another program uses."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_END_SECONDS = 5.0
BACKLOG = 1024
"""Connections that wait to be accepted."""


class ApiStart(msgspec.Struct, frozen=True):
    """The first message to the process: the settings, and the descriptors of its listening sockets (-1: none).

    ``refusal`` says why there is none at the address of the settings, such as ``Address already in use``.
    """

    settings: Settings
    unix: int
    tcp: int = -1
    refusal: str = ""


def encode_start(start: ApiStart) -> bytes:
    """``start`` as a line."""
    return msgspec.json.encode(start, enc_hook=str) + b"\n"


def decode_start(line: bytes) -> ApiStart:
    """The inverse of ``encode_start``."""
    return msgspec.json.decode(line, type=ApiStart, dec_hook=_decode_path)


def _decode_path(_wanted: type, text: Any) -> Path:
    return Path(text)


class ApiProcess:
    """Keeps the API running while the settings have ``api`` or ``readers``; ``close`` ends it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._settings: Settings | None = None
        self._measure: Callable[[], Measurements] = Measurements
        self._running: asyncio.Task[None] | None = None

    async def open(self, settings: Settings, measure: Callable[[], Measurements]) -> None:
        """Serve ``settings``, with what ``measure`` returns; a change of settings restarts the process."""
        self._measure = measure
        if settings == self._settings:
            return
        await self.close()
        self._settings = settings
        if settings.api is not None or settings.readers:
            self._running = asyncio.create_task(self._serve(settings), name="the HTTP API")

    async def close(self) -> None:
        """End the process; requests in progress have a few seconds."""
        self._settings = None
        if self._running is not None:
            await cancel_and_wait((self._running,), "the HTTP API", _END_SECONDS + 1)
            self._running = None

    async def _serve(self, settings: Settings) -> None:
        address = settings.api.address if settings.api is not None else ""
        with contextlib.ExitStack() as listening:
            unix = listening.enter_context(await _until_open(lambda: self._listen_unix(settings.readers)))
            listening.callback(self._end_listening, (self._state / SOCKET).lstat().st_ino)
            start, sockets = ApiStart(settings, unix.fileno()), [unix]
            if address:
                tcp = listening.enter_context(await self._open_tcp(address, start, unix))
                start, sockets = msgspec.structs.replace(start, tcp=tcp.fileno()), [unix, tcp]
            log().info("api", address=address or str(self._state / SOCKET), message="the API is served")
            await self._keep_running(start, sockets)

    async def _open_tcp(self, address: str, start: ApiStart, unix: socket.socket) -> socket.socket:
        """A socket that listens at ``address``; while another program does, the one in the state directory answers."""
        try:
            return _listen_tcp(address)
        except OSError as error:
            # Python adds the address, in words for its own programmers.
            reason = (error.strerror or str(error)).partition(" (while ")[0]
            refused = msgspec.structs.replace(start, refusal=reason)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._keep_running(refused, [unix]), name="the HTTP API without its address")
            tcp = await _until_open(lambda: _listen_tcp(address))
            serving.cancel()
        return tcp

    async def _keep_running(self, start: ApiStart, sockets: list[socket.socket]) -> None:
        await _keep_running(start, sockets, lambda: encode_beat(self._measure()))

    def _listen_unix(self, group: str) -> socket.socket:
        path = self._state / SOCKET
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), 0o600)  # before bind, so that the file never exists with wider rights
            with address_of(self._state, SOCKET) as address:
                listener.bind(address)
            if group:
                self._admit(path, group)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def _admit(self, path: Path, group: str) -> None:
        """Let the members of ``group`` connect; a refusal by the host is logged, and others are served."""
        try:
            gid = grp.getgrnam(group).gr_gid
            os.chown(path, -1, gid, follow_symlinks=False)
            os.chown(self._state, -1, gid)
            path.chmod(0o660)
            self._restrict(0o710)
        except KeyError:
            log().warning("readers", group=group, message="there is no such group on this host")
        except OSError as error:
            message = f"{error.strerror}: the daemon's user has to be a member of the group, or root"
            log().warning("readers", group=group, message=message)

    def _end_listening(self, inode: int) -> None:
        """Remove the socket, unless another daemon has replaced it, and close the directory to the readers."""
        if remove_own(self._state / SOCKET, inode):
            self._restrict(0o700)

    def _restrict(self, mode: int) -> None:
        """Set ``mode`` on the state directory; keep the search bit that the host engine sets for other users."""
        self._state.chmod(mode | (self._state.stat().st_mode & stat.S_IXOTH))


async def _until_open(listen: Any) -> socket.socket:
    """The socket that ``listen`` opens; while an address is taken, this is tried again."""
    refused = False
    while True:
        try:
            return listen()  # type: ignore[no-any-return]
        except OSError as error:
            if not refused:
                log().warning("api", message=f"{error.strerror}: the API is not served; this is tried again")
            refused = True
            await asyncio.sleep(RETRY)


def _listen_tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    [(family, *_, endpoint), *_] = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    return socket.create_server(endpoint[:2], family=family, backlog=BACKLOG)


async def _keep_running(start: ApiStart, sockets: list[socket.socket], beat: Callable[[], bytes]) -> None:
    """Start the process, and again whenever it ends, after growing pauses."""
    pause = _FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        # -I and "/": nothing is imported from the daemon's working directory.
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            "reconciler.api",
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[listener.fileno() for listener in sockets],
            process_group=0,  # Ctrl-C is for the daemon, also while this process only begins
        )
        try:
            await _send_heartbeats(running, start, beat)
        finally:
            await _stop_process(running)
        pause = _FIRST_PAUSE if loop.time() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
        log().error(
            "api", code=running.returncode, message=f"the process of the API ended; the next starts in {pause:g} s"
        )
        await asyncio.sleep(pause)


async def _send_heartbeats(running: asyncio.subprocess.Process, start: ApiStart, beat: Callable[[], bytes]) -> None:
    """Send the process its settings, then beats, until it ends."""
    assert running.stdin is not None
    ended = asyncio.create_task(running.wait())
    try:
        with contextlib.suppress(ConnectionError):
            running.stdin.write(encode_start(start))
            while not ended.done():
                running.stdin.write(beat())
                await running.stdin.drain()
                await asyncio.wait({ended}, timeout=BEAT_SECONDS)
        await ended
    finally:
        ended.cancel()


async def _stop_process(running: asyncio.subprocess.Process) -> None:
    """End the process: the end of its input asks for it, a signal demands it."""
    if running.returncode is not None:
        return
    assert running.stdin is not None
    running.stdin.close()
    await wait_or_kill(running, _END_SECONDS)
