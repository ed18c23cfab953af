"""Programs in containers of a cluster, over a WebSocket in the frames of Kubernetes' ``v5.channel.k8s.io``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from websockets.exceptions import ConnectionClosed

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import POD
from reconciler.engines.kubernetes.reading.pods import ClusterLocation, find_run, list_workload_pods
from reconciler.engines.kubernetes.status.fields import shorten_text
from reconciler.engines.reading import ExecTarget
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.terminal.session import Channel, StreamOutput, TerminalSize

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CLOSES_STREAMS = "v5.channel.k8s.io"
PROTOCOLS = (CLOSES_STREAMS, "v4.channel.k8s.io")
"""The protocols, the better one first: the older one cannot end the input of a program."""
END_SECONDS = 2.0
"""Seconds until the kubelet reports at the latest that a container has ended."""

_STDIN, _STATUS, _RESIZE, _CLOSE = 0, 3, 4, 255
_PART = 1 << 15
"""The most bytes of input in one message."""
_END_OF_INPUT = b"\x04"
_KILLED = 137
_PAUSE = 0.2
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_START_FAILURES = (
    ("executable file not found", _NOT_FOUND),
    ("no such file or directory", _NOT_FOUND),
    ("permission denied", _NOT_EXECUTABLE),
    ("exec format error", _NOT_EXECUTABLE),
)
"""Words of the OCI runtime for a program that cannot be started → the exit code of a shell."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    status: str = ""
    message: str = ""
    details: _Details | None = None


class _RunningContainer(NamedTuple):
    """The container that a program runs in; ``run`` tells its present run from others."""

    location: ClusterLocation
    target: ExecTarget
    run: str

    @property
    def words(self) -> str:
        """The container, for people."""
        return f"container {self.target.container} of {self.target.replica}"

    async def ends_now(self) -> bool:
        """Whether this run is over, or is soon reported to be. Raises EngineError."""
        api = KubeApi(self.location.cluster, SystemClock())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + END_SECONDS
        try:
            while await _find_pod_run(api, self.location, self.target) == self.run:
                if loop.time() > deadline:
                    return False
                await asyncio.sleep(_PAUSE)
        finally:
            await api.close()
        return True


class ClusterSession:
    """A program in ``container`` over ``link`` (see ExecSession for the methods)."""

    def __init__(self, link: ClientConnection, container: _RunningContainer, *, has_terminal: bool) -> None:
        self._link = link
        self._running = container
        self._container = container.words
        self._has_terminal = has_terminal
        self._status: _Status | None = None
        self._over = False

    async def write(self, content: bytes) -> None:
        """Return when the connection takes more."""
        for begin in range(0, len(content), _PART):
            await self._send(_STDIN, content[begin : begin + _PART])

    async def close_stdin(self) -> None:
        """End the input; a server with the older protocol cannot, and the program waits for more."""
        with suppress(BrokenPipeError):
            if self._has_terminal:
                await self._send(_STDIN, _END_OF_INPUT)
            elif self._link.subprotocol == CLOSES_STREAMS:
                await self._send(_CLOSE, bytes([_STDIN]))

    async def read(self) -> StreamOutput | None:
        """The next output."""
        while not self._over:
            message = await self._receive()
            if len(message) < 2:  # the server greets with an empty message
                continue
            channel, content = message[0], message[1:]
            if channel in frozenset(Channel):
                return StreamOutput(Channel(channel), content)
            if channel == _STATUS:
                self._status = _decode_status(content)
                self._over = True
        return None

    async def resize(self, size: TerminalSize) -> None:
        """Change the size."""
        if self._has_terminal:
            with suppress(BrokenPipeError):
                await self._send(_RESIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))

    async def wait(self) -> int:
        """The exit code; output that was not read is lost."""
        while await self.read() is not None:
            pass
        if self._status is None:
            words = self._link.close_reason or "the connection was cut"
            message = f"{self._container}: {shorten_text(words)}, so the exit code of the program is unknown"
            raise EngineError(message, reason=Reason.EXEC_FAILED)
        code = _find_exit_code(self._status, self._container)
        if code == _KILLED and await self._running.ends_now():
            message = f"{self._container} has ended, and the program with it"
            raise EngineError(message, reason=Reason.NOT_RUNNING)
        return code

    async def close(self) -> None:
        """Close the connection; the kubelet hangs up."""
        await self._link.close()

    async def _receive(self) -> bytes:
        try:
            message = await self._link.recv()
        except ConnectionClosed:
            self._over = True
            return b""
        if isinstance(message, bytes):
            return message
        message = f"{self._container}: the server does not speak the protocol of programs in containers"
        raise EngineError(message, reason=Reason.EXEC_FAILED)

    async def _send(self, channel: int, content: bytes) -> None:
        try:
            await self._link.send(bytes([channel]) + content)
        except ConnectionClosed:
            raise BrokenPipeError from None


async def open_cluster_session(
    location: ClusterLocation, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None
) -> ClusterSession:
    """Run ``argv`` in a container of a pod of the workload. Raises EngineError."""
    api = KubeApi(location.cluster, SystemClock())
    try:
        run = await _find_pod_run(api, location, target)
        container = _RunningContainer(location, target, run or "")
        if run is None:
            raise EngineError(f"{container.words} does not run", reason=Reason.NOT_RUNNING)
        params = {
            "container": target.container,
            "stdin": "true",
            "stdout": "true",
            # With a terminal, all output is one stream.
            "stderr": "false" if terminal is not None else "true",
            "tty": "true" if terminal is not None else "false",
        }
        words = [*params.items(), *(("command", word) for word in argv)]
        # The name is one of the listed pods, so no other object can be meant.
        path = f"{POD.path(location.namespace_of(target.key.gvc), target.replica)}/exec"
        link = await api.open_websocket(path, f"run a program in {container.words}", words, PROTOCOLS)
    finally:
        await api.close()
    session = ClusterSession(link, container, has_terminal=terminal is not None)
    if terminal is not None:
        await session.resize(terminal)
    return session


async def _find_pod_run(api: KubeApi, location: ClusterLocation, target: ExecTarget) -> str | None:
    """The present run of the container; None if it does not run, or is none of the workload."""
    pods = await list_workload_pods(api, location, target.key)
    pod = next((pod for pod in pods if pod.name == target.replica), None)
    return find_run(pod.part, target.container) if pod is not None else None


def _decode_status(content: bytes) -> _Status:
    try:
        return msgspec.json.decode(content, type=_Status)
    except msgspec.MsgspecError:
        return _Status(message="the server sent no status")


def _find_exit_code(status: _Status, container: str) -> int:
    """The exit code in ``status``. Raises EngineError if the program was not run to its end."""
    if status.status == "Success":
        return 0
    for cause in (status.details.causes if status.details is not None else None) or ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    code = next((code for words, code in _START_FAILURES if words in status.message), None)
    if code is not None:
        return code
    words = shorten_text(status.message) or "the server sent no exit code"
    raise EngineError(f"{container}: {words}", reason=Reason.EXEC_FAILED)
