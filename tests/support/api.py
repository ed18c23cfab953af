"""The HTTP API of a test: handlers over records that a real run wrote, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from reconciler.api.app import make_app
from reconciler.api.connections import Peer
from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.support.clock import FakeClock
from tests.support.git import File
from tests.support.sandbox import SHOP, DaemonSandbox

ROOT_PEER = Peer(1, 0, 0)
READER_PEER = Peer(1, 65534, 65534)
ORG = "/org/acme"


class ApiClient:
    """Requests of one caller: ``peer`` of the unix socket, None for TCP, where its connection has ``address``."""

    def __init__(self, api: Api, peer: Peer | None, address: str = "127.0.0.1") -> None:
        answer = make_app(api)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {} if peer is None else {"peer": peer}
            await answer(scope, receive, send)

        self.transport = httpx2.ASGITransport(app=app, client=(address, 123))

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """The response to one request."""

        async def ask() -> httpx2.Response:
            async with httpx2.AsyncClient(transport=self.transport, base_url="http://api") as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())

    def request_all(
        self, requests: Sequence[tuple[str, str, Any]], headers: Mapping[str, str] | None = None
    ) -> list[httpx2.Response]:
        """The responses to requests (method, path, JSON) that are made at once."""

        async def ask() -> list[httpx2.Response]:
            made = httpx2.AsyncClient(transport=self.transport, base_url="http://api", headers=headers, timeout=None)
            async with made as client:
                asked = (client.request(method, path, json=body) for method, path, body in requests)
                return await asyncio.gather(*asked)

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> Any:
        """The body of a response with status 200."""
        response = self.request("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()


class ApiEvent(NamedTuple):
    """An event of a watch."""

    id: str
    type: str
    body: Any


class ApiStream:
    """The response to a watch, while it comes. A client that does not read is one whose ``reading`` is cleared."""

    def __init__(self, api: Api, peer: Peer | None, path: str, headers: Mapping[str, str]) -> None:
        self.status = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._left = asyncio.Event()
        self._rest = ""
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "state": {} if peer is None else {"peer": peer},
            "client": None,
            "server": None,
            "root_path": "",
        }
        self._task = asyncio.create_task(make_app(api)(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._received.put_nowait(message["body"])
            if not message.get("more_body"):
                self._received.put_nowait(b"")

    async def text(self) -> str:
        """The next part of the body, "" at its end."""
        return (await asyncio.wait_for(self._received.get(), 30)).decode()

    async def line(self) -> str:
        """The next line of the body."""
        while "\n" not in self._rest:
            self._rest += await self.text()
        found, _, self._rest = self._rest.partition("\n")
        return found

    async def event(self) -> ApiEvent | None:
        """The next event but bookmarks; None at the end."""
        while True:
            while "\n\n" not in self._rest:
                if not (part := await self.text()):
                    return None
                self._rest += part
            content, _, self._rest = self._rest.partition("\n\n")
            fields = dict(line.split(": ", 1) for line in content.split("\n"))
            if fields["event"] != "bookmark":
                return ApiEvent(fields.get("id", ""), fields["event"], json.loads(fields["data"]))

    async def begin(self) -> None:
        """Wait until something comes; it stays to be read."""
        self._rest += await self.text()

    async def leave(self) -> None:
        """Close the connection, and wait for the end of the request."""
        self.reading.set()
        self._left.set()
        await self._task


class ApiSandbox(DaemonSandbox):
    """A sandbox whose files are applied, with the API over its records."""

    def __init__(self, path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> None:
        super().__init__(path, SHOP if files is None else files, **({"api": {}} | settings))
        done = self.run("apply")
        assert done.returncode == 0, done.stdout + done.stderr
        self.clock = FakeClock()
        self.api = Api(load_settings(self.settings_file), self.clock, lambda: True)

    @contextlib.asynccontextmanager
    async def watching(self, path: str, peer: Peer | None = ROOT_PEER, **headers: str) -> AsyncIterator[ApiStream]:
        """A watch of ``path`` that has begun."""
        stream = ApiStream(self.api, peer, path, {name.replace("_", "-"): value for name, value in headers.items()})
        try:
            await stream.begin()
            yield stream
        finally:
            await stream.leave()

    def client(self, peer: Peer | None = ROOT_PEER, address: str = "127.0.0.1") -> ApiClient:
        """Requests over the unix socket by ``peer``, or over TCP from ``address``."""
        return ApiClient(self.api, peer, address)


@contextlib.contextmanager
def api_sandbox(path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> Iterator[ApiSandbox]:
    """An ``ApiSandbox`` that is closed at the end."""
    sandbox = ApiSandbox(path, files, **settings)
    try:
        yield sandbox
    finally:
        sandbox.api.close()
