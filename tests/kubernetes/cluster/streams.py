"""What an API server asks kubelets for: logs of containers, sessions in them, what they use, how full volumes are.

A session runs its command on this machine, in an empty folder: pods of tests have no file system of their own. So
whoever asks a node has to prove by a certificate that the cluster knows them: others may reach its address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.kubernetes.cluster.addresses import LOOPBACK
from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.credentials import write_node_pair
from tests.kubernetes.cluster.metrics import describe_metrics
from tests.kubernetes.cluster.pod import Container, Pod, format_now
from tests.kubernetes.cluster.sessions import PROTOCOLS, Session
from tests.kubernetes.cluster.webhooks import Review, answer_review

POLL_SECONDS = 0.02


class Pods(Protocol):
    """What is asked about."""

    pods: dict[str, Pod]
    usage: dict[str, tuple[str, str]]
    used_bytes: dict[str, int]
    webhooks: dict[str, Review]
    webhook_delays: dict[str, float]


class StreamServer:
    """The HTTPS servers of all kubelets of a cluster: a port for each node, and one for webhooks and metrics."""

    def __init__(self, kubelet: Pods, folder: Path) -> None:
        self._kubelet = kubelet
        self._folder = folder
        self._nodes: dict[int, str] = {}
        self._runs: list[tuple[uvicorn.Server, asyncio.Task[None]]] = []

    async def start(self, address: str, nodes: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Listen; returns the port of webhooks and metrics on loopback, and those of ``nodes`` at ``address``."""
        shared = [
            Route("/webhooks/{name}", self._admit, methods=["POST"]),
            Route("/apis/metrics.k8s.io/{rest:path}", self._metrics),
        ]
        own = [
            Route("/containerLogs/{namespace}/{pod}/{container}", self._logs),
            WebSocketRoute("/exec/{namespace}/{pod}/{container}", self._exec),
            Route("/stats/summary", self._stats),
        ]
        write_node_pair(self._folder, address)
        [port] = await self._listen(shared, [socket.create_server((LOOPBACK, 0))], "kubelet")
        ports = await self._listen(own, [socket.create_server((address, 0)) for _ in nodes], "node")
        self._nodes = dict(zip(ports, nodes, strict=True))
        return port, {node: port for port, node in self._nodes.items()}

    async def _listen(self, routes: Sequence[BaseRoute], listeners: list[socket.socket], pair: str) -> list[int]:
        """The ports of ``listeners``, which serve ``routes`` with a certificate of the folder."""
        config = uvicorn.Config(
            Starlette(routes=routes),
            ssl_certfile=str(self._folder / f"{pair}.crt"),
            ssl_keyfile=str(self._folder / f"{pair}.key"),
            ssl_ca_certs=str(self._folder / "ca.crt") if pair == "node" else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if pair == "node" else ssl.CERT_NONE,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        ports: list[int] = [listener.getsockname()[1] for listener in listeners]
        serving = asyncio.create_task(server.serve(sockets=listeners))
        self._runs.append((server, serving))
        while not server.started and not serving.done():
            await asyncio.sleep(POLL_SECONDS)
        return ports

    async def stop(self) -> None:
        """End all streams."""
        for server, _ in self._runs:
            server.should_exit = True
        await asyncio.gather(*(serving for _, serving in self._runs))

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

    async def _stats(self, request: Request) -> Response:
        node = self._nodes[request.scope["server"][1]]
        own = [pod for pod in self._kubelet.pods.values() if pod.item["spec"]["nodeName"] == node]
        summary = {
            "node": {"nodeName": node},
            "pods": [_describe_volumes(pod, self._kubelet.used_bytes) for pod in own],
        }
        return JSONResponse(summary)

    async def _metrics(self, request: Request) -> Response:
        answer: Any = describe_metrics(request.path_params["rest"], self._kubelet.pods.values(), self._kubelet.usage)
        return JSONResponse(answer, 200) if answer else PlainTextResponse("404 page not found", 404)


def _describe_volumes(pod: Pod, used_bytes: Mapping[str, int]) -> Object:
    """A pod in the summary of its kubelet: each volume, and the claim of it that the test has measured."""
    metadata = pod.item["metadata"]
    namespace = metadata["namespace"]
    volumes: list[Object] = []
    for volume in pod.item["spec"].get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        measured: Object = {"name": volume["name"]}
        if claim:
            measured["pvcRef"] = {"namespace": namespace, "name": claim}
        if (used := used_bytes.get(f"{namespace}/{claim}")) is not None:
            measured["usedBytes"] = used
        volumes.append(measured)
    reference = {key: metadata[key] for key in ("name", "namespace", "uid")}
    return {"podRef": reference, "startTime": format_now(), "volume": volumes}


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
