"""Requests from outside through a real HAProxy: host names, paths, clients, and what attackers send."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.ingress import HOSTS, PREFIXES
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain, read_domain
from reconciler.model.no_wake import NoWake
from reconciler.settings import IngressSettings
from tests.engines.host.dataplane.haproxy.kit import Answer, Plane, WebReplica, play
from tests.engines.host.dataplane.kit import PATIENCE, PORT, Client, Replica, ask, until
from tests.support.processes import free_ports

WEB, API = Key(Kind.WORKLOAD, "shop", "web"), Key(Kind.WORKLOAD, "shop", "api")
ADMIN, STREAM = 9000, 5432
EVERYONE = ("0.0.0.0/0",)


def domain(name: str, **spec: Any) -> Domain:
    """A domain with links in normal form."""
    return read_domain(msgspec.json.encode({"kind": "domain", "name": name, "spec": spec}))


def link(key: Key) -> str:
    return f"/org/acme/gvc/{key.gvc}/workload/{key.name}"


def routes(*found: dict[str, Any], number: int = 443, **port: Any) -> dict[str, Any]:
    """A domain's spec with the routes of one port."""
    return {"ports": [{"number": number, "routes": [{"workloadLink": link(WEB), **each} for each in found], **port}]}


class IngressClients:
    """A plane with an ingress, two workloads, and clients outside."""

    def __init__(self, path: Path) -> None:
        self.ports = free_ports(2)
        self.settings = IngressSettings(("127.0.0.1", "::1"), *self.ports, ("127.0.0.2/32",))
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
        ports = {PORT: "http", ADMIN: "http", STREAM: "tcp"}
        served = tuple(ServedWorkload(key, ports, inbound) for key in (WEB, API))
        gvcs = {"shop": GvcRouting("alias", "gvc.example", dedicated=True, trusted_proxies=proxies)}
        self.table = build_table(RoutingInput("here", "platform.test", served, gvcs, domains))
        self.plane.dataplane.reroute()
        await until(lambda: self.plane.dataplane.routes_in_force)

    async def send(self, text: str, source: str = "127.0.0.1") -> Answer:
        """The answer to a request as it is."""
        try:
            address = "::1" if ":" in source else "127.0.0.1"
            reader, writer = await asyncio.open_connection(address, self.ports[0], local_addr=(source, 0))
        except OSError:
            return Answer(0, {}, "")
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

    async def answers(self, host: str, path: str, body: str) -> None:
        """Return when this is the answer."""
        async with asyncio.timeout(PATIENCE):
            while (await self.get(host, path)).body != body:
                self.plane.dataplane.reroute()
                await asyncio.sleep(0.02)

    @property
    def head(self) -> str:
        """The head of the last request that web got."""
        return self.web.heads[-1]


@pytest.fixture(scope="module", name="path")
def one_path(shared_path: Path) -> Path:
    """All tests here have the same HAProxy."""
    return shared_path


def test_host_names_lead_to_their_workloads(path: Path) -> None:
    outside = IngressClients(path)

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
        for host in (
            "other.example",
            "shop.example.evil",
            "xshop.example",
            "",
            "[::1]",
            "web",
            "b\u00fccher.example",
            "a,shop.example",
        ):
            assert (await outside.get(host)).status in (400, 404)
        unknown = await outside.get("other.example", "/", "Accept: application/json", "X-Request-Id: r-1")
        assert msgspec.json.decode(unknown.body)["id"] == "r-1"

    play(lambda: outside.plane, story)


def test_routes_choose_by_expression_then_by_the_longest_prefix(path: Path) -> None:
    outside = IngressClients(path)

    async def story(_: Plane) -> None:
        await outside.start()
        spec = routes(
            {"prefix": "/"},
            {"prefix": "/api", "workloadLink": link(API), "replacePrefix": ""},
            {"prefix": "/api/s", "replacePrefix": "/p%[src]'\\"},
            {"regex": "/v[0-9]+/(a|b)}?'?", "workloadLink": link(API)},
            {"prefix": "/ü; x", "workloadLink": link(API)},
            {"prefix": "/h", "hostPrefix": "api.", "workloadLink": link(API)},
        )
        await outside.serve(domain("shop.example", acceptAllSubdomains=True, **spec))
        for where, body in {
            "/": "web",
            "/apis": "api",
            "/v1/a": "api",
            "/v1/a/": "web",
            "/v12/b}'": "api",
            "/%C3%BC;%20x/y": "api",
            "//api": "web",
            "/a%2fb": "web",
            "/a/...": "web",
            "/h": "web",
        }.items():
            assert ((await outside.get("shop.example", where)).body, where) == (body, where)
        assert (await outside.get("api.shop.example", "/h")).body == "api"
        await outside.get("shop.example", "/api?x=/y")
        await outside.get("shop.example", "/api/x")
        assert [head.split()[1] for head in outside.api.heads[-2:]] == ["/?x=/y", "/x"]
        await outside.get("shop.example", "/api/s%41")
        assert outside.head.split()[1] == "/p%25%5Bsrc%5D'%5C%41"
        for trick in ("/x/../api", "/%2e%2e/api", "/x/.%2E", "/x%2f..%2Fapi", "/.;/api", "/x\\..\\api", "/./api"):
            assert ((await outside.get("shop.example", trick)).status, trick) == (400, trick)
        page = await outside.get("shop.example", "/x/../api")
        assert page.body.startswith("400: the request is not valid (request ")
        # A suspended workload has routes and no backend.
        outside.plane.dataplane.withdraw(API)
        async with asyncio.timeout(PATIENCE):
            while (page := await outside.get("shop.example", "/api")).status != 503:
                await asyncio.sleep(0.01)
        assert page.body.startswith("503: the workload is not served yet (request ")
        outside.plane.dataplane.suspend(Service(API, PORT))
        async with asyncio.timeout(PATIENCE):
            while "suspended" not in (page := await outside.get("shop.example", "/api")).body:
                await asyncio.sleep(0.01)
        assert page.body.startswith("503: the workload is suspended (request ")

    play(lambda: outside.plane, story)


def test_routes_and_streams_lead_to_other_ports_of_a_workload(path: Path) -> None:
    outside = IngressClients(path)
    [number] = free_ports(1)

    async def story(plane: Plane) -> None:
        await outside.start()
        admin, stream = await WebReplica("admin").start(), await Replica("stream").start()
        ports = {
            str(port): each.endpoint.address for port, each in ((PORT, outside.web), (ADMIN, admin), (STREAM, stream))
        }
        plane.dataplane.update(WEB, (Endpoint("web", ports[str(PORT)], ports, 1),))
        spec = routes({"prefix": "/"}, {"prefix": "/admin", "port": ADMIN}, {"prefix": "/own", "port": PORT})
        tcp = {
            "ports": [{"number": number, "protocol": "tcp", "routes": [{"workloadLink": link(WEB), "port": STREAM}]}]
        }
        await outside.serve(domain("shop.example", **spec), domain("stream.example", **tcp))
        bodies = [(await outside.get("shop.example", where)).body for where in ("/", "/admin", "/own")]
        assert bodies == ["web", "admin", "web"]
        assert await ask(f"127.0.0.1:{number}") == "stream hello"
        counts = (await plane.dataplane.traffic())[WEB]
        assert counts.arrived >= 4
        await outside.serve(inbound=())
        await outside.serve(domain("stream.example", **tcp), inbound=())
        assert await ask(f"127.0.0.1:{number}") == ""

    play(lambda: outside.plane, story)


def test_requests_from_outside_are_measured_and_some_of_them_wake_nothing(path: Path) -> None:
    outside = IngressClients(path)
    host = "web-alias.platform.test"
    service = Service(WEB, PORT, measures_latency=True, no_wake=NoWake(paths=("/health",)))

    async def story(plane: Plane) -> None:
        await outside.start()
        answered: list[tuple[Key, str]] = []
        plane.dataplane.listen(lambda key, name, _: answered.append((key, name)))
        plane.dataplane.publish(service)
        await outside.serve()
        for _ in range(3):
            await outside.get(host)
            await outside.get("api-alias.platform.test")
        await until(lambda: answered == [(WEB, "web")] * 3)
        outside.web.status = b"404 Not Found"
        assert (await outside.get(host)).body == "web"
        await until(lambda: answered == [(WEB, "web")] * 4)
        assert plane.lines == []
        await plane.ready(key=WEB)
        assert (await outside.get(host, "/health")).status == 503
        assert plane.woken == []
        waiting = asyncio.create_task(outside.get(host))
        await until(lambda: plane.woken)
        await plane.ready(outside.web, key=WEB)
        assert (await waiting).body == "web"
        await outside.serve(domain("shop.example", **routes({"prefix": "/"}, {"prefix": "/admin", "port": ADMIN})))
        ports = {str(port): outside.web.endpoint.address for port in (PORT, ADMIN)}
        plane.dataplane.update(WEB, (Endpoint("web", ports[str(PORT)], ports, 1),))
        await plane.dataplane.synchronize(WEB)
        before = (await plane.dataplane.traffic())[WEB]
        for path in ("/health", "/", "/admin", "/admin"):
            assert (await outside.get("shop.example", path)).body == "web"
        assert (await plane.dataplane.traffic())[WEB].arrived == before.arrived + 3
        # The latency of those that wake nothing is not measured, and the lines of the log come in order.
        plane.dataplane.update(WEB, (Endpoint("last", ports[str(PORT)], ports, 1),))
        await plane.dataplane.synchronize(WEB)
        await outside.get("shop.example")
        await until(lambda: answered[-1] == (WEB, "last"))
        assert answered[:-1] == [(WEB, "web")] * 8

    play(lambda: outside.plane, story)


class EchoReplica(WebReplica):
    """Accepts a WebSocket, and sends back what comes."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        while found := await reader.read(100):
            writer.write(found)
        writer.close()


@pytest.mark.slow
def test_websockets_pass(path: Path) -> None:
    outside = IngressClients(path)
    outside.web = EchoReplica("web")
    headers = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    lines = ("GET /chat HTTP/1.1", "Host: shop.example", *headers, "Sec-WebSocket-Version: 13", "", "")

    async def story(_: Plane) -> None:
        await outside.start()
        await outside.serve(domain("shop.example", **routes({"prefix": "/chat", "replacePrefix": "/ws"})))
        client = await Client.to(f"127.0.0.1:{outside.ports[0]}")
        client.send("\r\n".join(lines).encode())
        while line := await client.answer():
            assert not line.startswith("HTTP/1.1") or line.split()[1] == "101"
        client.send(b"ping\n")
        assert await client.answer() == "ping"
        assert outside.head.startswith("GET /ws ")
        client.close()

    play(lambda: outside.plane, story)


def test_clients_come_in_by_their_own_address_and_only_if_they_may(path: Path) -> None:
    outside = IngressClients(path)
    host = "web-alias.platform.test"

    async def story(_: Plane) -> None:
        await outside.start()
        forged = ("X-Forwarded-For: 192.0.2.1, 198.51.100.7", "X-Forwarded-Proto: https", "Forwarded: for=192.0.2.1")
        await outside.serve(inbound=("127.0.0.1", "2001:db8::/32"))
        assert (await outside.get(host, "/", *forged)).status == 200
        head = outside.head.lower()
        assert "x-forwarded-for: 127.0.0.1\r\n" in head
        assert "x-forwarded-proto: http\r\n" in head
        assert f"x-forwarded-host: {host}\r\n" in head
        assert "\r\nforwarded:" not in head
        refused = await outside.get(host, "/", *forged, "Accept: application/json", source="127.0.0.3")
        assert (refused.status, msgspec.json.decode(refused.body)["status"]) == (403, 403)
        assert outside.plane.events == []
        await until(lambda: len(outside.plane.lines) == 1)
        [(key, line)] = outside.plane.lines
        named = msgspec.json.decode(refused.body)["id"]
        assert (key, line) == (WEB, f"403 GET /: the address of the client is not allowed (request {named})")

        await outside.serve(inbound=("198.51.100.0/24",), proxies=1)
        assert (await outside.get(host, "/", *forged)).status == 200
        assert "x-forwarded-for: 198.51.100.7, 127.0.0.1\r\n" in outside.head.lower()
        assert "x-forwarded-proto: https\r\n" in outside.head.lower()
        assert (await outside.get(host)).status == 403
        await outside.serve(inbound=("192.0.2.1",), proxies=2)
        assert (await outside.get(host, "/", *forged)).status == 200
        assert (await outside.get(host, "/", "X-Forwarded-For: 192.0.2.1")).status == 403

        await outside.serve(inbound=())
        assert (await outside.get(host)).status == 403
        await outside.serve(inbound=("203.0.113.9",))
        proxied = f"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n"
        assert (await outside.send(proxied, "127.0.0.2")).status == 200
        assert "x-forwarded-for: 203.0.113.9\r\n" in outside.head.lower()
        assert (await outside.send(proxied)).status == 400

    play(lambda: outside.plane, story)


def test_addresses_of_both_families_come_in_by_their_own_entries(path: Path) -> None:
    outside = IngressClients(path)
    host = "web-alias.platform.test"

    async def story(_: Plane) -> None:
        await outside.start()
        for inbound, fourth, sixth in (
            (("127.0.0.0/8",), 200, 403),
            (("::1",), 403, 200),
            (("::/64", "10.0.0.0/8"), 403, 200),
            (("::/0",), 403, 200),
            (("0.0.0.0/0",), 200, 200),
        ):
            await outside.serve(inbound=inbound)
            found = [(await outside.get(host, source=each)).status for each in ("127.0.0.1", "::1")]
            assert (inbound, found) == (inbound, [fourth, sixth])

    play(lambda: outside.plane, story)


def test_routes_change_headers_and_answer_preflight_requests(path: Path) -> None:
    outside = IngressClients(path)
    hostile = "a\"b'c %[src] #d \\ $HOME"
    changed = {"Host": "%REQ(:authority)%.internal", "X-Text": hostile, "X-Copy": "<%REQ(X-Own)%>"}
    cors = {
        "allowOrigins": [{"exact": "https://a.example"}, {"regex": "https://.*[.]b[.]example"}],
        "allowMethods": ["GET", "PUT"],
        "allowHeaders": ["X-Token", "*"],
        "exposeHeaders": ["X-Total"],
        "maxAge": "1h30m",
        "allowCredentials": True,
    }

    async def story(_: Plane) -> None:
        await outside.start()
        found = routes({"prefix": "/", "headers": {"request": {"set": changed}}}, cors=cors)
        await outside.serve(domain("shop.example", **found))
        answer = await outside.get("shop.example", "/", "X-Own: 7, 8", "Origin: https://x.b.example")
        assert answer.headers["access-control-allow-origin"] == "https://x.b.example"
        assert answer.headers["access-control-expose-headers"] == "x-total"
        head = outside.head
        assert f"\r\nX-Text: {hostile}\r\n".lower() in head.lower()
        assert "\r\nx-copy: <7, 8>\r\n" in head.lower()
        assert "\r\nhost: shop.example.internal\r\n" in head.lower()
        count = len(outside.web.heads)
        asked = "Access-Control-Request-Method: PUT"
        preflight = "OPTIONS / HTTP/1.1\r\nHost: shop.example\r\nOrigin: https://a.example\r\n" + asked + "\r\n\r\n"
        more = "Access-Control-Request-Headers: X-A, X-B\r\n\r\n"
        answer = await outside.send(preflight.removesuffix("\r\n") + more)
        assert (answer.status, len(outside.web.heads)) == (204, count)
        assert answer.headers["access-control-allow-methods"] == "get, put"
        # With credentials, browsers do not take "*" for any.
        assert answer.headers["access-control-allow-headers"] == "x-a, x-b"
        assert answer.headers["access-control-max-age"] == "5400"
        assert answer.headers["access-control-allow-credentials"] == "true"
        refused = await outside.send(preflight.replace("a.example", "a.example.evil"))
        assert "access-control-allow-origin" not in refused.headers
        await outside.get("web-alias.here.platform.test")
        assert "\r\nhost: web-alias.platform.test\r\n" in outside.head.lower()

    play(lambda: outside.plane, story)


def test_what_haproxy_refuses_takes_nothing_else_down(path: Path) -> None:
    outside = IngressClients(path)

    async def story(_: Plane) -> None:
        await outside.start()
        wrong = routes(
            {"regex": "(?<=a+)b"},
            {"regex": "(?<=b+)c"},
            {"prefix": "/long", "replacePrefix": "/" + "x" * 3000},
            {"prefix": "/name", "headers": {"request": {"set": {"X Y\r\n": "1"}}}},
            {"prefix": "/value", "headers": {"request": {"set": {"X": "1\r\nY: 2"}}}},
            {"prefix": "/reference", "headers": {"request": {"set": {"X": "%REQ(a,b)%"}}}},
            {"regex": "/\n  server x 1.2.3.4:5"},
            {"prefix": "/", "workloadLink": link(API)},
            cors={"allowOrigins": [{"regex": "(*)"}]},
        )
        fine = domain("fine.example", workloadLink=link(WEB))
        await outside.serve(domain("wrong.example", **wrong), fine)
        assert (await outside.get("fine.example")).body == "web"
        assert (await outside.get("wrong.example", "/b", "Origin: https://a.example")).body == "api"
        problems = outside.plane.dataplane.route_problems()
        assert list(problems) == ["wrong.example"]
        assert sorted(each.partition(" of ")[0] for each in problems["wrong.example"]) == [
            "CORS",
            *(f"route {number}" for number in range(1, 8)),
        ]

    play(lambda: outside.plane, story)


def test_ambiguous_requests_are_refused_or_read_in_one_way(path: Path) -> None:
    outside = IngressClients(path)
    host = "web-alias.platform.test"
    start = f"POST / HTTP/1.1\r\nHost: {host}\r\n"

    async def story(_: Plane) -> None:
        await outside.start()
        await outside.serve(domain("shop.example", workloadLink=link(API)))
        for request in (
            f"{start}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            f"{start}Content-Length: 5, 6\r\n\r\nhello!",
            f"{start}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            f"{start}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            f"{start}Host: shop.example\r\n\r\n",
            f"{start}X: a\x00b\r\n\r\n",
            f"GET http://shop.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
            f"{start}X-Long: {'x' * 65_536}\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            f"GET /\u00fc HTTP/1.1\r\nHost: {host}\r\n\r\n",
        ):
            count = len(outside.web.heads) + len(outside.api.heads)
            answer = await outside.send(request)
            # HAProxy 3.4 names a request that is too long; before that it is a bad one.
            assert (answer.status in (400, 404, 431, 0), request[:80]) == (True, request[:80])
            assert len(outside.web.heads) + len(outside.api.heads) == count
        # A replica that knew h2c would take requests behind the proxy's back.
        upgrade = ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", "Connection: Upgrade, HTTP2-Settings")
        assert (await outside.get(host, "/", *upgrade)).status == 200
        assert "h2c" not in outside.head
        assert "http2-settings:" not in outside.head.lower()
        # A length beside chunks is dropped: the replica cannot read another end of the body.
        both = f"{start}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert (await outside.send(both)).status == 200
        assert "content-length" not in outside.head.lower()

    play(lambda: outside.plane, story)


def test_a_port_of_another_program_is_an_error_and_not_the_end_of_the_rest(path: Path) -> None:
    outside = IngressClients(path)

    async def story(plane: Plane) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", outside.ports[0]))
            other.listen()
            await outside.start()
            await outside.serve()
            assert "another program uses this port" in plane.dataplane.error(WEB)
            assert plane.dataplane.address(WEB)
        plane.dataplane.reroute()
        await until(lambda: not plane.dataplane.error(WEB))
        # The reload that opens the port may have to wait for its turn.
        await outside.answers("web-alias.platform.test", "/", "web")

    play(lambda: outside.plane, story)


@pytest.mark.slow
def test_maps_that_others_change_and_lost_workers_are_restored(path: Path) -> None:
    outside = IngressClients(path)

    async def story(plane: Plane) -> None:
        await outside.start()
        spec = routes({"prefix": "/"}, {"prefix": "/api", "workloadLink": link(API)})
        await outside.serve(domain("shop.example", **spec))
        worker = plane.worker
        for line in (f"clear map ./{HOSTS}", f"set map ./{PREFIXES} _digest 0", f"clear map ./{PREFIXES}"):
            await plane.command(line)
        await outside.answers("shop.example", "/api", "api")
        # One entry more changes the maps without a reload.
        await outside.serve(domain("shop.example", **spec), domain("more.example", workloadLink=link(API)))
        assert (await outside.get("more.example")).body == "api"
        await outside.serve(domain("shop.example", **spec))
        assert (await outside.get("more.example")).status == 404
        assert plane.worker == worker
        os.kill(worker, signal.SIGKILL)
        await outside.answers("shop.example", "/api", "api")

    play(lambda: outside.plane, story)


def test_without_a_workload_the_ingress_answers_404(path: Path) -> None:
    outside = IngressClients(path)
    host = "web-alias.platform.test"

    async def story(plane: Plane) -> None:
        outside.table = build_table(RoutingInput("here", "platform.test"))
        plane.dataplane.reroute()
        # The first workload comes, and the last one goes: no client is refused at the port.
        await until(lambda: plane.dataplane.routes_in_force)
        assert (await outside.get(host)).status == 404
        await outside.start()
        await outside.serve()
        assert (await outside.get(host)).body == "web"
        for key in (WEB, API):
            plane.dataplane.forget(key)
        outside.table = build_table(RoutingInput("here", "platform.test"))
        plane.dataplane.reroute()
        await until(lambda: plane.dataplane.routes_in_force)
        assert (await outside.get(host)).status == 404
        assert plane.dataplane.error(WEB) == ""
        os.kill(plane.worker, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while (await outside.get(host)).status != 404:
                await asyncio.sleep(0.02)

    play(lambda: outside.plane, story)
