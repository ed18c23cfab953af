"""What an API server asks kubelets for: logs of containers, sessions in them, and what they use.

A session runs its command on this machine, in an empty folder: pods of tests have no file system of their own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.kubernetes.cluster.metrics import describe_metrics
from tests.kubernetes.cluster.pod import Container, Pod
from tests.kubernetes.cluster.sessions import PROTOCOLS, Session
from tests.kubernetes.cluster.webhooks import Review, answer_review

POLL_SECONDS = 0.02


class Pods(Protocol):
    """What is asked about."""

    pods: dict[str, Pod]
    usage: dict[str, tuple[str, str]]
    webhooks: dict[str, Review]
    webhook_delays: dict[str, float]


class StreamServer:
    """The HTTPS server of all kubelets of a cluster."""

    def __init__(self, kubelet: Pods, folder: Path) -> None:
        self._kubelet = kubelet
        routes = [
            Route("/containerLogs/{namespace}/{pod}/{container}", self._logs),
            WebSocketRoute("/exec/{namespace}/{pod}/{container}", self._exec),
            Route("/webhooks/{name}", self._admit, methods=["POST"]),
            Route("/apis/metrics.k8s.io/{rest:path}", self._metrics),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            ssl_certfile=str(folder / "kubelet.crt"),
            ssl_keyfile=str(folder / "kubelet.key"),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen, and return the port."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(POLL_SECONDS)
        port: int = listener.getsockname()[1]
        return port

    async def stop(self) -> None:
        """End all streams."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def _find(self, names: Mapping[str, str]) -> Container | None:
        for pod in self._kubelet.pods.values():
            if pod.name == names["pod"] and pod.item["metadata"]["namespace"] == names["namespace"]:
                return next((each for each in pod.every_container if each.name == names["container"]), None)
        return None

    async def _logs(self, request: Request) -> Response:
        names, query = request.path_params, request.query_params
        container = self._find(names)
        where = f'container "{names["container"]}" in pod "{names["pod"]}"'
        if container is None:
            return PlainTextResponse(f"{where} is not found", 404)
        previous = query.get("previous") == "true"
        if previous and not container.restarts:
            return PlainTextResponse(f"previous terminated {where} not found", 400)
        if not container.id:
            reason = container.state["waiting"]["reason"]
            return PlainTextResponse(f"{where} is waiting to start: {reason}", 400)
        lines = container.previous_log if previous else container.log
        follow = query.get("follow") == "true" and not previous
        return StreamingResponse(_stream_lines(container, lines, query, follow), media_type="text/plain")

    async def _exec(self, websocket: WebSocket) -> None:
        protocols = [each for each in PROTOCOLS if each in websocket.scope["subprotocols"]]
        container = self._find(websocket.path_params)
        if not protocols or container is None or not container.running:
            await websocket.close()
            return
        await websocket.accept(subprotocol=protocols[0])
        await Session(websocket, container.environment).run()

    async def _admit(self, request: Request) -> Response:
        name = request.path_params["name"]
        await asyncio.sleep(self._kubelet.webhook_delays.get(name, 0.0))
        return JSONResponse(answer_review(self._kubelet.webhooks[name], await request.json()))

    async def _metrics(self, request: Request) -> Response:
        answer: Any = describe_metrics(request.path_params["rest"], self._kubelet.pods.values(), self._kubelet.usage)
        return JSONResponse(answer, 200) if answer else PlainTextResponse("404 page not found", 404)


async def _stream_lines(
    container: Container, lines: list[tuple[str, str]], query: Mapping[str, str], follow: bool
) -> AsyncIterator[bytes]:
    """The lines that ``query`` asks for."""
    since = datetime.fromisoformat(query.get("sinceTime", "1970-01-01T00:00:00Z"))
    if seconds := query.get("sinceSeconds"):
        since = datetime.now(UTC) - timedelta(seconds=float(seconds))
    # As texts, a time with a fraction of a second is before one without.
    times = (datetime.fromisoformat(time) for time, _ in lines)
    start = next((number for number, time in enumerate(times) if time >= since), len(lines))
    if tail := query.get("tailLines"):
        start = max(start, len(lines) - int(tail))
    left = int(query.get("limitBytes", 1 << 40))
    run = container.id
    while True:
        ended = not (container.running and container.id == run)
        while start < len(lines) and left > 0:
            time, text = lines[start]
            content = (f"{time} {text}\n" if query.get("timestamps") == "true" else f"{text}\n").encode()[:left]
            start, left = start + 1, left - len(content)
            yield content
        if ended or not follow or left <= 0:
            return
        await asyncio.sleep(POLL_SECONDS)
