"""Requests from outside through a real HAProxy: host names, paths, clients, and what attackers send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.host.dataplane.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.engines.host.dataplane.routing.table import RouteTable
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain, read_domain
from reconciler.settings import IngressSettings
from tests.engines.host.dataplane.haproxy.kit import Answer, Plane, WebReplica, end, play
from tests.engines.host.dataplane.kit import PATIENCE, PORT, until
from tests.support.programs import tool

WEB, API = Key(Kind.WORKLOAD, "shop", "web"), Key(Kind.WORKLOAD, "shop", "api")
EVERYONE = ("0.0.0.0/0",)


def domain(name: str, **spec: Any) -> Domain:
    """A domain with links in normal form."""
    return read_domain(msgspec.json.encode({"kind": "domain", "name": name, "spec": spec}))


def link(key: Key) -> str:
    return f"/org/acme/gvc/{key.gvc}/workload/{key.name}"


def routes(*found: dict[str, Any], number: int = 443, **port: Any) -> dict[str, Any]:
    """A domain's spec with the routes of one port."""
    return {"ports": [{"number": number, "routes": [{"workloadLink": link(WEB), **each} for each in found], **port}]}


class Outside:
    """A plane with an ingress, two workloads, and clients outside."""

    def __init__(self, path: Path) -> None:
        self.ports = [_free_port(), _free_port()]
        self.settings = IngressSettings(("127.0.0.1",), *self.ports, ("127.0.0.2/32",))
        self.table = RouteTable()
        self.plane = Plane(path, ingress=self.settings, routes=lambda: self.table)
        self.web = WebReplica("web")
        self.api = WebReplica("api")

    async def start(self) -> None:
        """Serve both workloads."""
        for key, replica in ((WEB, self.web), (API, self.api)):
            await self.plane.address(Service(key, PORT), await replica.start())

    async def serve(self, *domains: Domain, inbound: tuple[str, ...] = EVERYONE, proxies: int = 0) -> None:
        """Serve ``domains``, and return when it is in force."""
        served = tuple(ServedWorkload(key, {PORT: "http"}, inbound) for key in (WEB, API))
        gvcs = {"shop": GvcRouting("alias", "gvc.example", trusted_proxies=proxies)}
        self.table = build_table(RoutingInput("here", "platform.test", served, gvcs, domains))
        self.plane.dataplane.reroute()
        await until(lambda: self.plane.dataplane.routes_in_force)

    async def send(self, text: str, source: str = "127.0.0.1") -> Answer:
        """The answer to a request as it is."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[0], local_addr=(source, 0))
        try:
            writer.write(text.encode("utf-8", "surrogateescape"))
            async with asyncio.timeout(PATIENCE):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, OSError):
            return Answer(0, {}, "")
        finally:
            writer.close()
        return Answer(int(head[0].split()[1]), headers, body.decode())

    async def get(self, host: str, path: str = "/", *headers: str, source: str = "127.0.0.1") -> Answer:
        """The answer to a request for ``path`` of ``host``."""
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", "")
        return await self.send("\r\n".join(lines), source)

    @property
    def head(self) -> str:
        """The head of the last request that web got."""
        return self.web.heads[-1]


@pytest.fixture(scope="module", name="path")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the location, whose HAProxy ends after the last test."""
    tool("haproxy", "haproxy")
    path = tmp_path_factory.mktemp("location")
    yield path
    end(path)


def test_host_names_lead_to_their_workloads(path: Path) -> None:
    outside = Outside(path)

    async def story(_: Plane) -> None:
        await outside.start()
        shop = domain("shop.example", workloadLink=link(API), acceptAllSubdomains=True)
        await outside.serve(shop, domain("apps.example", gvcLink="/org/acme/gvc/shop"))
        for host, body in {
            "web-alias.platform.test": "web",
            "api-alias.here.platform.test": "api",
            "WEB-alias.Platform.test.": "web",
            "web-alias.platform.test:8080": "web",
            "shop.example": "api",
            "a.b.shop.example": "api",
            "web.apps.example": "web",
            "web.gvc.example": "web",
        }.items():
            assert ((await outside.get(host)).body, host) == (body, host)
        for host in ("other.example", "shop.example.evil", "xshop.example", "", "[::1]", "web", "b\u00fccher.example"):
            assert (await outside.get(host)).status in (400, 404)
        unknown = await outside.get("other.example", "/", "Accept: application/json", "X-Request-Id: r-1")
        assert msgspec.json.decode(unknown.body)["id"] == "r-1"

    play(lambda: outside.plane, story)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
