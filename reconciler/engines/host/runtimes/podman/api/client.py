"""The client of Podman's REST API: one pool of connections over its unix socket.

A service that restarts refuses connections for a moment, and breaks those that are open. A request that was not sent
is repeated until the service answers; one that only reads is repeated in any case. For any other the outcome is
unknown: its error is ``lost``, and the caller finds out by a list.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import msgspec

from reconciler.engines.host.runtimes.podman.api.answers import PodmanError

API = "/v4.0.0/libpod/"
"""The oldest version of the API that Podman 4, 5 and 6 all answer, and in the same form."""
PATIENCE = 10.0
"""Seconds to wait for a service that does not answer; one that restarts answers within half a second."""
_SECONDS = 60.0
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
_CONNECTIONS = 64
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors of requests that never reached the service."""
JSON, TAR = "application/json", "application/x-tar"


class _ErrorBody(msgspec.Struct):
    cause: str = ""
    message: str = ""


class PodmanRequest(msgspec.Struct, frozen=True):
    """A request below ``API``. ``body`` is sent as JSON, or as a tar archive if it is bytes.

    ``headers`` may have a login, so it never shows them.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: object = None
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"

    @property
    def url(self) -> str:
        """The whole URL; the host is of no meaning."""
        return f"http://podman{API}{self.path}" + (f"?{urlencode(self.query)}" if self.query else "")


def encode_segment(name: str) -> str:
    """``name`` as one part of a path, whatever it contains."""
    return quote(name, safe="")


class PodmanClient:
    """Requests to the service at ``socket``; ``transport`` replaces the socket in tests.

    ``interruptions`` counts the requests that the service did not answer: it may have left something half done.
    """

    def __init__(self, socket: Path, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.interruptions = 0
        self.socket = socket
        limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=8)
        # Without ``verify=False`` the transport loads all certificates of this host, for a socket without TLS.
        over = transport or httpx2.AsyncHTTPTransport(uds=str(socket), verify=False, limits=limits)
        # Proxies of the environment are not meant for a socket, so it is not trusted.
        self._http = httpx2.AsyncClient(transport=over, timeout=httpx2.Timeout(_SECONDS, connect=5.0), trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The content at ``path``; waits for the service. Raises PodmanError, never a lost one."""
        return await self.send(PodmanRequest("GET", path, query or {}))

    async def get_start(self, path: str, query: Mapping[str, str], limit: int) -> bytes:
        """The first ``limit`` bytes of the content at ``path``; the rest is never received. Raises PodmanError."""
        content = bytearray()
        try:
            async with asyncio.timeout(_SECONDS), self.stream(PodmanRequest("GET", path, query)) as parts:
                async for part in parts:
                    content += part
                    if len(content) >= limit:
                        break
        except TimeoutError as error:
            raise self._make_no_answer_error(error, lost=False) from error
        return bytes(content[:limit])

    async def post(self, path: str, body: object = None, query: Mapping[str, str] | None = None) -> bytes:
        """Change something. Raises PodmanError."""
        return await self.send(PodmanRequest("POST", path, query or {}, body))

    async def delete(self, path: str, query: Mapping[str, str] | None = None) -> bool:
        """Delete an object, with a retry if the reply is lost; returns whether it existed. Raises PodmanError."""
        try:
            await self.send(PodmanRequest("DELETE", path, query or {}), safe=True)
        except PodmanError as error:
            if error.missing:
                return False
            raise
        return True

    async def send(self, request: PodmanRequest, *, safe: bool = False) -> bytes:
        """The content of the answer. ``safe``: the request may be repeated. Raises PodmanError."""
        deadline = time.monotonic() + PATIENCE
        for pause in _iterate_pauses():
            try:
                answer = await self._http.request(request.method, request.url, **_build_content(request))
            except httpx2.TransportError as error:
                self.interruptions += 1
                again = safe or request.method == "GET" or isinstance(error, _UNSENT)
                late = time.monotonic() + pause > deadline
                if late or not again or isinstance(error, httpx2.ReadTimeout):
                    lost = not isinstance(error, _UNSENT) and request.method != "GET"
                    raise self._make_no_answer_error(error, lost=lost) from error
            else:
                _check_answer(answer.status_code, answer.content)
                return answer.content
            await asyncio.sleep(pause)
        raise AssertionError("the pauses never end")

    @asynccontextmanager
    async def stream(self, request: PodmanRequest) -> AsyncIterator[AsyncIterator[bytes]]:
        """The parts of a long answer, as they arrive, without a time limit. Raises PodmanError."""
        timeout = httpx2.Timeout(_SECONDS, read=None)
        try:
            async with self._http.stream(
                request.method, request.url, timeout=timeout, **_build_content(request)
            ) as answer:
                if answer.status_code >= 300:
                    _check_answer(answer.status_code, await answer.aread())
                yield answer.aiter_bytes()
        except httpx2.TransportError as error:
            raise self._make_no_answer_error(error, lost=True) from error

    def _make_no_answer_error(self, error: Exception, *, lost: bool) -> PodmanError:
        why = str(error) or type(error).__name__
        return PodmanError(f"Podman does not answer at {self.socket}: {why}", lost=lost)


def _iterate_pauses() -> Any:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _build_content(request: PodmanRequest) -> dict[str, Any]:
    if request.body is None:
        return {"headers": request.headers}
    if isinstance(request.body, bytes):
        return {"content": request.body, "headers": {**request.headers, "Content-Type": TAR}}
    return {"content": msgspec.json.encode(request.body), "headers": {**request.headers, "Content-Type": JSON}}


def _check_answer(status: int, content: bytes) -> None:
    """Raise PodmanError unless the answer is good. 304: it is already as requested."""
    if status < 300 or status == 304:
        return
    try:
        body = msgspec.json.decode(content, type=_ErrorBody)
    except msgspec.DecodeError:
        body = _ErrorBody(message=content[:300].decode(errors="replace"))
    message = " ".join((body.message or body.cause or f"status {status}").split())
    raise PodmanError(f"Podman: {message[:1000]}", status=status, cause=body.cause)
