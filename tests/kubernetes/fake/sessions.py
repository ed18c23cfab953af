"""Sessions in containers: `exec` over WebSocket, as kube-apiserver and a kubelet answer it together."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""The first byte of a message: its channel."""
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


class SessionScript(NamedTuple):
    """What a program does: it writes, with ``echo`` it repeats its input until that ends, and exits."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    echo: bool = False


class Session(NamedTuple):
    """A session that a client had, with the sizes of its terminal."""

    pod: str
    query: dict[str, list[str]]
    sizes: list[dict[str, int]]


class Sessions:
    """The scripts of programs, and the sessions that were."""

    def __init__(self) -> None:
        self._scripts: list[tuple[str, SessionScript]] = []
        self.past: list[Session] = []

    def script(self, pattern: str, script: SessionScript) -> None:
        """Let programs in the pods that match ``namespace/name`` follow ``script``; the newest counts."""
        self._scripts.insert(0, (pattern, script))

    async def run(self, socket: WebSocket, pod: str) -> None:
        """Run a session until its program ends or the client goes."""
        offered = socket.scope.get("subprotocols") or []
        protocol = next((name for name in PROTOCOLS if name in offered), None)
        if protocol is None:
            text = f"unable to upgrade: unable to negotiate protocol: client supports {offered}\n"
            await socket.send_denial_response(Response(text, 400))
            return
        await socket.accept(protocol)
        query = {key: socket.query_params.getlist(key) for key in socket.query_params}
        session = Session(pod, query, [])
        self.past.append(session)
        script = next((script for pattern, script in self._scripts if fnmatch(pod, pattern)), SessionScript())
        try:
            await self._run_script(socket, script, session)
        except WebSocketDisconnect:
            return

    async def _run_script(self, socket: WebSocket, script: SessionScript, session: Session) -> None:
        for channel, content in ((STDOUT, script.stdout), (STDERR, script.stderr)):
            if content:
                await socket.send_bytes(bytes([channel]) + content)
        while script.echo:
            message = await socket.receive_bytes()
            if message[:2] == bytes([CLOSE, STDIN]):
                break
            if message[0] == STDIN:
                await socket.send_bytes(bytes([STDOUT]) + message[1:])
            if message[0] == RESIZE:
                session.sizes.append(json.loads(message[1:]))
        await socket.send_bytes(bytes([ERROR]) + json.dumps(exit_status(script.exit_code)).encode())
        await socket.close()


def exit_status(code: int) -> dict[str, Any]:
    """The Status at the end of a session."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with non-zero exit code: exit status {code}"
    details = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": details}
