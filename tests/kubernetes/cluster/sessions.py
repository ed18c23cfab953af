"""A session in a container, in the form that the remote command protocol of Kubernetes has over WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import tempfile
import termios
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The newest first; with v5, a client can end the input."""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK = 32_768


class Session:
    """A command that runs for a WebSocket, and its streams."""

    def __init__(self, websocket: WebSocket, variables: dict[str, str]) -> None:
        self._websocket = websocket
        self._variables = variables
        self._query = websocket.query_params
        self._terminal = self._query.get("tty") in ("1", "true")

    async def run(self) -> None:
        """Run the command to its end, or to the client's."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                status = await self._run_command(folder)
            except OSError as error:
                status = {"status": "Failure", "reason": "InternalError", "code": 500, "message": str(error)}
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._send(ERROR, msgspec.json.encode({"metadata": {}, **status}))
            await self._websocket.close()

    async def _run_command(self, folder: str) -> dict[str, Any]:
        """How it ended, as a Status."""
        command = self._query.getlist("command")
        controller, side = os.openpty() if self._terminal else (-1, -1)
        stream = side if self._terminal else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, "TERM": "xterm", **self._variables},
            stdin=stream,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        if self._terminal:
            os.close(side)
            outputs = [asyncio.create_task(self._copy_terminal(controller))]
        else:
            outputs = [
                asyncio.create_task(self._copy(STDOUT, process.stdout)),
                asyncio.create_task(self._copy(STDERR, process.stderr)),
            ]
        inputs = asyncio.create_task(self._receive(process, controller))
        try:
            await asyncio.gather(*outputs)
            code = await process.wait()
        finally:
            inputs.cancel()
            if self._terminal:
                os.close(controller)
        return _describe_end(code)

    async def _send(self, channel: int, content: bytes) -> None:
        await self._websocket.send_bytes(bytes([channel]) + content)

    async def _copy(self, channel: int, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while content := await stream.read(CHUNK):
            await self._send(channel, content)

    async def _copy_terminal(self, controller: int) -> None:
        """A terminal whose other side is closed ends with an error instead of an empty read."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(controller, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                await self._send(STDOUT, os.read(controller, CHUNK))
        except OSError:
            return
        finally:
            loop.remove_reader(controller)

    async def _receive(self, process: asyncio.subprocess.Process, controller: int) -> None:
        """Pass on what the client sends; without a client the command ends."""
        try:
            while True:
                message = await self._websocket.receive_bytes()
                channel, content = message[0], message[1:]
                if channel == RESIZE and self._terminal:
                    size = msgspec.json.decode(content)
                    fcntl.ioctl(
                        controller, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                    )
                elif channel == STDIN and self._terminal:
                    os.write(controller, content)
                elif channel == STDIN and process.stdin is not None:
                    process.stdin.write(content)
                    await process.stdin.drain()
                elif channel == CLOSE and process.stdin is not None:
                    process.stdin.close()
        except (WebSocketDisconnect, ConnectionError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _describe_end(code: int) -> dict[str, Any]:
    if code == 0:
        return {"status": "Success"}
    number = code if code > 0 else 128 - code
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {number}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(number)}]},
    }
