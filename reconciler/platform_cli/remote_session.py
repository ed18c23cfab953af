"""A program in a container, over a WebSocket of the API in the frames of Kubernetes' ``v5.channel.k8s.io``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from reconciler.platform_cli import transport
from reconciler.platform_cli.client import USER_AGENT, ApiEndpoint, Client
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.retries import RequestRetries
from reconciler.platform_cli.transport import UNIX, Response, proxy_for, tls_context
from reconciler.tasks import cancel_and_wait
from reconciler.terminal.session import Channel, StreamOutput, TerminalSize

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STATUS, _RESIZE, _CLOSE = 0, 3, 4, 255
_OUTPUTS = frozenset(Channel)
_PART = 1 << 16
"""The most bytes of input in one message."""
_OPEN_SECONDS, _CLOSE_SECONDS = 30.0, 1.0
_LOCAL = "ws://localhost"


class RemoteSession:
    """An ``ExecSession`` over ``link``."""

    def __init__(self, link: ClientConnection) -> None:
        self._link = link
        self._status: Any = None
        self._silent = False
        self._watching = asyncio.create_task(self._watch())

    async def write(self, content: bytes) -> None:
        """Return when the connection takes more. Raises BrokenPipeError if it is closed."""
        for begin in range(0, len(content), _PART):
            await self._send(bytes([_STDIN]) + content[begin : begin + _PART])

    async def close_stdin(self) -> None:
        """End the program's stdin."""
        with suppress(BrokenPipeError):
            await self._send(bytes([_CLOSE, _STDIN]))

    async def read(self) -> StreamOutput | None:
        """The next output, None at the end."""
        with suppress(ConnectionClosed):
            async for message in self._link:
                channel, content = message[:1], message[1:]
                if not isinstance(channel, bytes) or not isinstance(content, bytes) or not channel:
                    raise ApiError("the server does not speak the protocol of Kubernetes for programs in containers")
                if channel[0] in _OUTPUTS:
                    return StreamOutput(Channel(channel[0]), content)
                if channel[0] == _STATUS:
                    self._status = _decode_status(content)
                    break
        return None

    async def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal."""
        with suppress(BrokenPipeError):
            await self._send(bytes([_RESIZE]) + json.dumps({"Width": size.columns, "Height": size.rows}).encode())

    async def wait(self) -> int:
        """The exit code of the program. Raises ApiError if the connection ended before it."""
        if self._status is None:
            silent = f"no answer came for {transport.SILENT_SECONDS} s"
            reason = silent if self._silent else self._link.close_reason or "the connection was cut"
            raise ApiError(f"{reason}, so the exit code is unknown; the server ends the program")
        return _exit_code(self._status)

    async def close(self) -> None:
        """Close the connection, which ends the program."""
        await cancel_and_wait([self._watching], "exec")
        await self._link.close()

    async def _watch(self) -> None:
        """Cut a connection whose other side is silent. Pings see to it that it owes answers."""
        connection = self._link.transport.get_extra_info("socket")
        while not self._silent:
            await asyncio.sleep(transport.SILENT_SECONDS / 6)
            if connection.fileno() < 0:
                return
            self._silent = transport.measure_silence(connection) > transport.SILENT_SECONDS
        self._link.transport.abort()

    async def _send(self, message: bytes) -> None:
        try:
            await self._link.send(message)
        except ConnectionClosed:
            raise BrokenPipeError from None


async def open_session(
    client: Client, path: str, words: Sequence[str], names: Mapping[str, str], size: TerminalSize | None
) -> RemoteSession:
    """Start ``words``, or a shell, in a container of the workload at ``path``, on a terminal of ``size`` if it has one.

    ``names`` are those of the replica, the container and the location. Raises ApiError.
    """
    terminal = {} if size is None else {"tty": "true", "rows": str(size.rows), "columns": str(size.columns)}
    query = urlencode([*terminal.items(), *names.items(), *(("command", word) for word in words)])
    path = f"{path}/-exec"
    retries = RequestRetries(repeatable=True)
    while True:
        try:
            link = await _connect_websocket(client.endpoint, f"{path}?{query}")
        except InvalidStatus as refused:
            response = _as_response(refused.response)
            client.show("GET", path, None, response)
            if (pause := retries.pause(response)) is None:
                client.answer(response, path)
                raise client.unreachable(refused) from None
            await asyncio.sleep(pause)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise client.unreachable(error) from None
        else:
            client.show("GET", path, None, _as_response(link.response))
            return RemoteSession(link)


async def _connect_websocket(endpoint: ApiEndpoint, target: str) -> ClientConnection:
    """A WebSocket at the path and query ``target``."""
    # A message waits while the program, or this terminal, takes no more; a pong behind it then says nothing about the
    # connection. So none is waited for: the kernel knows whether pings arrive.
    settings: dict[str, Any] = {
        "subprotocols": [_PROTOCOL],
        "compression": None,
        "max_size": None,
        "user_agent_header": USER_AGENT,
        "ping_timeout": None,
        "ping_interval": transport.SILENT_SECONDS / 3,
        "open_timeout": _OPEN_SECONDS,
        "close_timeout": _CLOSE_SECONDS,
    }
    if endpoint.token:
        settings["additional_headers"] = {"Authorization": f"Bearer {endpoint.token}"}
    if endpoint.url.startswith(UNIX):
        return await unix_connect(endpoint.url.removeprefix(UNIX), f"{_LOCAL}{target}", **settings)
    scheme, authority, *_ = urlsplit(endpoint.url)
    proxy = proxy_for(scheme, authority)
    if scheme == "https":
        settings["ssl"] = tls_context(insecure=endpoint.insecure)
    return await connect(f"ws{endpoint.url.removeprefix('http')}{target}", proxy=proxy and proxy.url, **settings)


def _as_response(response: Any) -> Response:
    """An answer to the handshake as the other requests have it, without the request: a command may hold secrets."""
    if response is None:
        return Response(101, "", {}, b"", {})
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return Response(response.status_code, response.reason_phrase, headers, bytes(response.body or b""), {})


def _decode_status(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return {"message": "the server sent no status"}


def _exit_code(status: Any) -> int:
    """The exit code in a status of Kubernetes. Raises ApiError if the program has none."""
    if isinstance(status, dict):
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or []
        for cause in causes:
            if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdigit():
                return int(cause["message"])
    message = status.get("message") if isinstance(status, dict) else None
    raise ApiError(str(message or "the server sent no exit code"))
