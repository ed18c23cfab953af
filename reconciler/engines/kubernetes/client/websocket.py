"""WebSockets to the API server, which carry the streams of a program in a container."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import httpx2
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from reconciler.engines.kubernetes.client.credentials import CONNECT_SECONDS
from reconciler.engines.kubernetes.client.errors import explain_no_answer, explain_refusal

SILENT_SECONDS = 30
"""Seconds for which not even the kernel of the other side may answer."""

_CLOSE_SECONDS = 1.0
_UNAUTHORIZED = 401


def _refuse_redirect(_connect: connect, exc: Exception) -> Exception | str:
    """What is raised for an answer that may redirect: the credentials are for this server alone."""
    return exc


class _Connect(connect):
    """Follows no redirect."""

    process_redirect = _refuse_redirect


async def open_websocket(
    config: SingleConfig, auth: httpx2.Auth | None, target: str, subject: str, protocols: Sequence[str]
) -> ClientConnection:
    """A WebSocket at ``target``, a path with its query, in the first of ``protocols`` that the server has.

    It logs in by ``auth`` as a request does, with new credentials once if the first are refused. Raises ClusterError.
    """
    url = f"{config.cluster.server.rstrip('/')}{target}"
    flow = (auth or httpx2.Auth()).async_auth_flow(httpx2.Request("GET", url))
    try:
        async with aclosing(flow):
            request: httpx2.Request | None = await anext(flow)
            while request is not None:
                try:
                    return await _open_link(config, request, protocols)
                except InvalidStatus as error:
                    refusal = error.response
                request = await _log_in_again(flow, httpx2.Response(refusal.status_code, request=request))
        raise explain_refusal(refusal.status_code, bytes(refusal.body or b""), subject)
    except (OSError, WebSocketException) as error:
        raise explain_no_answer(error, config.cluster.server) from None


async def _log_in_again(
    flow: AsyncGenerator[httpx2.Request, httpx2.Response], answer: httpx2.Response
) -> httpx2.Request | None:
    """The request with new credentials; None if ``answer`` is no matter of credentials, or there are no new ones."""
    with suppress(StopAsyncIteration):
        if answer.status_code == _UNAUTHORIZED:
            return await flow.asend(answer)
    return None


async def _open_link(config: SingleConfig, request: httpx2.Request, protocols: Sequence[str]) -> ClientConnection:
    secure = config.cluster.server.startswith("https:")
    assert config.user is not None
    context = verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False) if secure else None
    headers = {name: value for name, value in request.headers.items() if name == "authorization"}
    link = await _Connect(
        f"ws{str(request.url).removeprefix('http')}",
        ssl=context,
        additional_headers=headers,
        subprotocols=[Subprotocol(name) for name in protocols],
        compression=None,
        max_size=None,
        proxy=None,
        open_timeout=CONNECT_SECONDS,
        close_timeout=_CLOSE_SECONDS,
        # A message waits while the program takes no more, and a pong waits behind it. The kernel notices a lost peer.
        ping_interval=SILENT_SECONDS / 3,
        ping_timeout=None,
    )
    link.transport.get_extra_info("socket").setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000
    )
    return link
