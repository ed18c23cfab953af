"""Sessions over Podman's API, where the OCI runtime is out of reach: a connection that becomes the program's streams.

Each leaves two processes of Podman behind, for five minutes by its default.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.engines.host.runtimes.podman.api.answers import (
    Created,
    Inspected,
    ListedSession,
    PodmanError,
    decode_answer,
)
from reconciler.engines.host.runtimes.podman.api.client import API, PodmanClient
from reconciler.engines.host.runtimes.podman.tracked import signal_program
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.terminal.session import Channel, StreamOutput, TerminalSize

_UPGRADED = 101
_SECONDS = 30.0
"""Seconds in which Podman must take a request."""
_NOTICE_SECONDS = 5.0
"""Seconds in which Podman notices that a program has ended, after its output has."""
_PAUSE = 0.02
_END_SECONDS = 0.5
_KILLED = 137
_BLOCK = 1 << 16
_FRAME = struct.Struct(">BxxxL")
_NOISE = b"Error: read unixpacket"
"""Words of Podman after a program that could not be started, which is reported before."""
_CTRL_D = b"\x04"
_TERM = "TERM=xterm"


class _Program(NamedTuple):
    """The IDs of the container and of the session."""

    container: str
    session: str


class _Link(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def attach_program(
    socket: Path, container: str, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
) -> AttachedSession:
    """Run ``argv`` in the container with that ID, at ``container_id``. Raises EngineError."""
    client = PodmanClient(socket)
    try:
        async with asyncio.timeout(_SECONDS):
            session = decode_answer(
                await client.post(f"containers/{container}/exec", _build_command(argv, terminal)), Created
            ).id
            link = await _upgrade_connection(socket, f"exec/{session}/start", _build_start(terminal))
    except (OSError, ValueError, asyncio.IncompleteReadError, EngineError) as error:
        await client.close()
        if isinstance(error, EngineError):
            raise
        message = f"cannot run a program in {container_id.container}: Podman does not answer at {socket}"
        raise EngineError(message, reason=Reason.EXEC_FAILED) from error
    return AttachedSession(client, _Program(container, session), container_id, link, terminal is not None)


def _build_command(argv: Sequence[str], terminal: TerminalSize | None) -> dict[str, object]:
    streams = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Tty": terminal is not None}
    return {**streams, "Cmd": list(argv), "Env": [_TERM] if terminal else []}


def _build_start(terminal: TerminalSize | None) -> bytes:
    size = {"h": terminal.rows, "w": terminal.columns} if terminal else {}
    return msgspec.json.encode({"Detach": False, "Tty": terminal is not None, **size})


async def _upgrade_connection(socket: Path, path: str, body: bytes) -> _Link:
    """A connection that is a stream after its request. Raises OSError, ValueError, IncompleteReadError."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        lines = (
            f"POST {API}{path} HTTP/1.1",
            "Host: podman",
            "Connection: Upgrade",
            "Upgrade: tcp",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        if int(head.split()[1]) != _UPGRADED:
            raise ValueError(head.partition(b"\r\n")[0].decode(errors="replace"))
    except BaseException:
        writer.close()
        raise
    return _Link(reader, writer)


class AttachedSession:
    """A program that Podman runs (see ExecSession for the methods). It closes ``client`` too."""

    def __init__(
        self, client: PodmanClient, program: _Program, container_id: ContainerId, link: _Link, on_terminal: bool
    ) -> None:
        self._client = client
        self._container, self._session = program
        self._place = container_id
        self._link = link
        self._on_terminal = on_terminal
        self._size: TerminalSize | None = None

    async def write(self, content: bytes) -> None:
        """Write to the connection."""
        try:
            self._link.writer.write(content)
            await self._link.writer.drain()
        except (OSError, RuntimeError) as error:
            raise BrokenPipeError("the program no longer reads") from error

    async def close_stdin(self) -> None:
        """Close our half of the connection, or type Ctrl-D."""
        with contextlib.suppress(OSError):
            if self._on_terminal:
                await self.write(_CTRL_D)
            else:
                self._link.writer.write_eof()

    async def read(self) -> StreamOutput | None:
        """Read from the connection: bytes of the terminal, or frames of two streams."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self._on_terminal:
                content = await self._link.reader.read(_BLOCK)
                await self._repeat_size()
                return StreamOutput(Channel.STDOUT, content) if content else None
            while True:
                stream, length = _FRAME.unpack(await self._link.reader.readexactly(_FRAME.size))
                content = await self._link.reader.readexactly(length)
                if content and not content.startswith(_NOISE):
                    return StreamOutput(Channel.STDERR if stream == Channel.STDERR else Channel.STDOUT, content)
        return None

    async def resize(self, size: TerminalSize) -> None:
        """Have Podman set the size. It refuses that before the program has started, and after its end."""
        if not self._on_terminal:
            return
        self._size = size
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_SECONDS):
                while not await self._set_size(size) and not await self._has_ended():
                    await asyncio.sleep(_PAUSE)

    async def _repeat_size(self) -> None:
        """Set the size again at the first output: Podman sets that of the start late, after one that came since."""
        size, self._size = self._size, None
        if size is not None:
            await self._set_size(size)

    async def _set_size(self, size: TerminalSize) -> bool:
        query = {"h": str(size.rows), "w": str(size.columns)}
        try:
            await self._client.post(f"exec/{self._session}/resize", query=query)
        except PodmanError:
            return False
        return True

    async def _has_ended(self) -> bool:
        session = await self._inspect()
        return session is None or (session.can_remove and not session.running)

    async def wait(self) -> int:
        """Wait until Podman has the exit code. Raises EngineError if the container, or the connection, is gone."""
        deadline = asyncio.get_running_loop().time() + _NOTICE_SECONDS
        while (session := await self._inspect()) is not None and session.running:
            if self._link.reader.at_eof() and asyncio.get_running_loop().time() > deadline:
                raise EngineError("the connection to Podman is lost; the program goes on", reason=Reason.EXEC_FAILED)
            await asyncio.sleep(_PAUSE)
        # When the first process of a container ends, the kernel kills all others.
        if session is None or (session.exit_code == _KILLED and await self._has_container_ended()):
            message = f"container {self._place.container} of {self._place.replica} has ended, and the program with it"
            raise EngineError(message, reason=Reason.NOT_RUNNING)
        return session.exit_code & 0xFF

    async def close(self) -> None:
        """Close the connection, and send SIGHUP to the program if it still runs and we may."""
        with contextlib.suppress(PodmanError):
            if (session := await self._inspect()) is not None and session.running:
                signal_program(self._container, session.pid, signal.SIGHUP)
        self._link.writer.close()
        await self._client.close()

    async def _has_container_ended(self) -> bool:
        """Whether the container has ended, or does so in a moment, of which Podman learns a little later."""
        deadline = asyncio.get_running_loop().time() + _END_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            try:
                content = await self._client.get(f"containers/{self._container}/json")
            except PodmanError as error:
                if error.missing:
                    return True
                raise
            if not decode_answer(content, Inspected).running:
                return True
            await asyncio.sleep(_PAUSE)
        return False

    async def _inspect(self) -> ListedSession | None:
        """The program as Podman knows it; None if its container is gone."""
        try:
            return decode_answer(await self._client.get(f"exec/{self._session}/json"), ListedSession)
        except PodmanError as error:
            if error.missing:
                return None
            raise
