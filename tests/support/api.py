"""The HTTP API of a test: handlers over records that a real run wrote, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from reconciler.api.app import make_app
from reconciler.api.connections import Peer
from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.support.clock import FakeClock
from tests.support.git import File
from tests.support.sandbox import SHOP, Site

ROOT_PEER = Peer(1, 0, 0)
READER_PEER = Peer(1, 65534, 65534)
ORG = "/org/acme"


class ApiClient:
    """Requests of one caller: ``peer`` of the unix socket, None for TCP."""

    def __init__(self, api: Api, peer: Peer | None) -> None:
        answer = make_app(api)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {} if peer is None else {"peer": peer}
            await answer(scope, receive, send)

        self._transport = httpx2.ASGITransport(app=app)

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """The response to one request."""

        async def ask() -> httpx2.Response:
            async with httpx2.AsyncClient(transport=self._transport, base_url="http://api") as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())

    def request_all(self, requests: Sequence[tuple[str, str, Any]]) -> list[httpx2.Response]:
        """The responses to requests (method, path, JSON) that are made at once."""

        async def ask() -> list[httpx2.Response]:
            async with httpx2.AsyncClient(transport=self._transport, base_url="http://api") as client:
                asked = (client.request(method, path, json=body) for method, path, body in requests)
                return await asyncio.gather(*asked)

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> Any:
        """The body of a response with status 200."""
        response = self.request("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()


class ApiSite(Site):
    """A sandbox whose files are applied, with the API over its records."""

    def __init__(self, path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> None:
        super().__init__(path, SHOP if files is None else files, **({"api": {}} | settings))
        done = self.run("apply")
        assert done.returncode == 0, done.stdout + done.stderr
        self.clock = FakeClock()
        self.api = Api(load_settings(self.settings_file), self.clock, lambda: True)

    def client(self, peer: Peer | None = ROOT_PEER) -> ApiClient:
        """Requests over the unix socket by ``peer``, or over TCP."""
        return ApiClient(self.api, peer)


@contextlib.contextmanager
def api_site(path: Path, files: Mapping[str, File] | None = None, **settings: Any) -> Iterator[ApiSite]:
    """An ``ApiSite`` that is closed at the end."""
    site = ApiSite(path, files, **settings)
    try:
        yield site
    finally:
        site.api.close()
