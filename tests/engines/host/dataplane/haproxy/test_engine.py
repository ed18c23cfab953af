"""The host engine with HAProxy: from zero, through a rollout, a suspension and a restart of the daemon."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from reconciler.engines.host.dataplane.choice import DATAPLANE
from reconciler.engines.host.dataplane.haproxy.plane import HaproxyDataPlane
from reconciler.engines.host.logs.segments import iterate_backward, list_segments, valid_end
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.reasons import Reason
from reconciler.settings import IngressSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, WebReplica, end, get
from tests.engines.host.dataplane.kit import PATIENCE, until
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import HostHarness, play_on
from tests.engines.host.test_from_zero import ReplicaServers, address_of, ask_for, status
from tests.support.certificates import authority, issue
from tests.support.processes import free_ports
from tests.support.programs import tool

STEADY = {"metric": "concurrency", "target": 2, "minScale": 1, "maxScale": 1}

signals: list[tuple[str, bool]] = []
"""Each replica that got a signal, and whether HAProxy still gave it new requests then."""


class WatchedRuntime(FakeRuntime):
    """Records for each signal what HAProxy does with the replica."""

    plane: HaproxyDataPlane | None = None

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """As Runtime.signal."""
        if self.plane is not None:
            live = self.plane.live_servers(container_id.key).get(container_id.replica)
            signals.append((container_id.replica, live is not None and live.ready))
        await super().signal(container_id, number)


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The state directory; its HAProxy ends after the test."""
    tool("haproxy", "haproxy")
    yield tmp_path
    end(tmp_path / "here" / DATAPLANE)


def test_a_workload_is_served_by_haproxy_from_zero_through_a_rollout_and_a_restart(path: Path) -> None:
    async def story(host: HostHarness) -> None:
        plane = host.engine.location.publisher.dataplane
        assert isinstance(plane, HaproxyDataPlane)
        WatchedRuntime.plane = plane
        servers = ReplicaServers(host, WebReplica)
        await ask_for(host)
        address = await address_of(host)
        # A request that waits keeps its replica, however slow this machine is and however fast the clock.
        waiting = asyncio.create_task(get(address))
        await servers.pass_until(1)
        assert (await waiting).status == 200
        await servers.pass_until(0)

        waiting = asyncio.create_task(get(address))
        await servers.pass_until(1)
        [first] = [replica.name for replica in host.replicas()]
        assert (await waiting).body == first
        signals.clear()
        await ask_for(host, version=2, autoscaling=STEADY)
        await servers.pass_until(1, version=2)
        assert (first, False) in signals
        assert not any(ready for _, ready in signals)
        [second] = [replica.name for replica in host.replicas()]
        assert (await get(address)).body == second
        host.engine.location.publisher.split(KEY, {1: 0, 2: 100})
        await plane.synchronize(KEY)
        assert (await get(address)).body == second

        await host.engine.close()
        assert (await get(address)).body == second
        WatchedRuntime.plane = None
        await host.restart()
        assert (await get(address)).body == second
        assert await address_of(host) == address

        await ask_for(host, version=2, autoscaling=STEADY, suspend=True)
        await servers.pass_until(0)
        assert (await status(host))["address"] == ""
        await plane._wait_until_applied()
        assert (await get(address)).body.startswith("503: the workload is suspended")

        # The split by version is still there when the workload is resumed.
        await host.engine.close()
        WatchedRuntime.plane = None
        await host.restart()
        await ask_for(host, version=2, autoscaling=STEADY)
        await servers.pass_until(1, version=2)
        assert await address_of(host) == address
        assert (await get(address)).headers["set-cookie"].partition(";")[0].endswith("=2")

    play_on(lambda: HostHarness(path, WatchedRuntime, "haproxy"), story)


def test_requests_that_a_replica_does_not_end_in_its_grace_period_are_reported(path: Path) -> None:
    async def story(host: HostHarness) -> None:
        plane, servers = host.engine.location.publisher.dataplane, ReplicaServers(host, WebReplica)
        await ask_for(host, image="stubborn", autoscaling=STEADY)
        await servers.pass_until(1)
        address = await address_of(host)
        [first] = servers.servers
        servers.servers[first].gate.clear()
        asked = [asyncio.create_task(get(address)) for _ in range(3)]
        await until(lambda: servers.servers[first].open == 3)
        async with asyncio.timeout(PATIENCE):
            while plane.open_requests(KEY, first) < 3:
                await host.time.advance(0.5)
                await asyncio.sleep(0.01)
        await ask_for(host, version=2, image="stubborn", autoscaling=STEADY)
        await servers.pass_until(1, version=2)
        found = [each.message for each in host.engine.news() if each.reason is Reason.REQUESTS_CUT_OFF]
        assert found == [f"{first}: 3 requests were cut off, since the termination grace period is over"]
        await asyncio.gather(*asked)

    play_on(lambda: HostHarness(path, FakeRuntime, "haproxy"), story)


def test_requests_that_do_not_wake_keep_no_replica(path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host, WebReplica)
        await ask_for(host, tags={"reconciler/no-wake": "/healthz, Monitor"})
        address = await address_of(host)
        answers: list[int] = []

        async def monitor() -> None:
            while True:
                answers.append((await get(address, "User-Agent: a monitor")).status)
                await asyncio.sleep(0.01)

        await servers.pass_until(1)
        watching = asyncio.create_task(monitor())
        await until(lambda: answers.count(200) > 10)
        await servers.pass_until(0)
        await until(lambda: answers[-1] == 503)
        watching.cancel()
        assert host.replicas() == []

    play_on(lambda: HostHarness(path, FakeRuntime, "haproxy"), story)


def test_domains_and_gvcs_take_effect_without_a_new_version(path: Path) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        settings = IngressSettings(("127.0.0.1",), first.getsockname()[1], second.getsockname()[1])
    at = f"127.0.0.1:{settings.http_port}"

    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host, WebReplica)
        await ask_for(host, autoscaling=STEADY)
        await servers.pass_until(1)
        [name] = [replica.name for replica in host.replicas()]
        await address_of(host)
        assert await served(host, at, "shop.example") == 404
        route = {"workloadLink": "/org/acme/gvc/shop/workload/web", "prefix": "/"}
        wrong = {"workloadLink": "/org/acme/gvc/shop/workload/web", "regex": "(?<=a+)"}
        put(host, Kind.DOMAIN, "shop.example", {"ports": [{"number": 443, "routes": [route, wrong]}]})
        host.engine.refresh()
        assert await served(host, at, "shop.example", 403) == 403
        assert await endpoints(host) == ["shop.example"]
        await until(lambda: (host.root / DATAPLANE / "errors" / "shop" / "web.log").exists())
        await host.engine.location.collector.collect()
        assert "403 GET /: the address of the client is not allowed (request " in stored(host)
        events = []

        def reported() -> bool:
            events.extend(each for each in host.engine.news() if each.reason is Reason.ROUTE_NOT_SERVED)
            return len(events) == 2

        await until(reported)
        assert {event.key for event in events} == {Key(Kind.DOMAIN, "", "shop.example")}
        [refused, certificate] = sorted((event.message for event in events), key=lambda each: "TLS" in each)
        assert refused.startswith("route 2 of port 443")
        assert certificate == "shop.example is not served with TLS: no certificate is for shop.example"
        lacking = [value["message"] for value in (await status(host))["conditions"] if value["type"] == "NotEnforced"]
        assert "The domain shop.example is not served as it is declared: route 2 of port 443" in lacking[0]
        assert "The endpoint is not served with TLS: no certificate is for web-" in lacking[0]
        put(host, Kind.GVC, "shop", {"domain": "old.example"})
        host.records.applied.remove([("domain/shop.example", "")])
        host.engine.refresh()
        assert await served(host, at, "shop.example", 404) == 404
        assert await served(host, at, "web.old.example", 403) == 403
        assert [replica.name for replica in host.replicas()] == [name]

    play_on(lambda: HostHarness(path, FakeRuntime, "haproxy", settings), story)


def test_a_refresh_reads_the_certificates_again(path: Path) -> None:
    folder = path / "certificates"
    folder.mkdir()
    settings = IngressSettings(("127.0.0.1",), *free_ports(2), certificates=folder)

    async def story(host: HostHarness) -> None:
        await ask_for(host, autoscaling=STEADY)
        await ReplicaServers(host, WebReplica).pass_until(1)
        put(host, Kind.DOMAIN, "shop.example", {"workloadLink": "/org/acme/gvc/shop/workload/web"})
        host.engine.refresh()
        for days in (50.0, 80.0):
            issued = issue("shop.example", end=days)
            (folder / "shop.pem").write_bytes(issued.pem)
            host.engine.refresh()
            # No minute passes, after which files are read anyway.
            await until(lambda: _shown(settings.https_port) == issued.certificate.public_bytes(Encoding.DER))  # noqa: B023

    def make() -> HostHarness:
        host = HostHarness(path, FakeRuntime, "haproxy", settings)
        host.time.jump(time.time() - host.time.now())
        return host

    play_on(make, story)


def _shown(port: int) -> bytes:
    """The certificate of a host name in the handshake; b"" without one."""
    context = ssl.create_default_context(cadata=authority().chain_pem.decode())
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="shop.example") as secure,
        ):
            return secure.getpeercert(True) or b""
    except OSError:
        return b""


def put(host: HostHarness, kind: Kind, name: str, spec: dict[str, Any]) -> None:
    """Record a resource as applied."""
    body = msgspec.json.encode({"kind": str(kind), "name": name, "spec": spec})
    host.records.applied.put(Record(Key(kind, "", name), "", "shop", f"{spec}", body, 1, "recorded", Health.HEALTHY))


async def served(host: HostHarness, address: str, name: str, status: int = 404) -> int:
    """The status of a request for a host name, once it is ``status``."""
    for _ in range(1000):
        status_seen = (await get(address, host=name)).status
        if status_seen == status:
            break
        await host.time.advance(0.1)
        await asyncio.sleep(0.01)
    return status_seen


async def endpoints(host: HostHarness) -> list[str]:
    """The addresses of the workload by domains, as recorded."""
    await host.record()
    [record] = host.records.applied.get(KEY)
    found: list[str] = msgspec.json.decode(record.state)["workload"]["domainEndpoints"]
    return found


def stored(host: HostHarness) -> str:
    """All lines of the workload about requests, from its logs."""
    directory = host.root / "logs" / "shop" / "web" / "ingress" / "haproxy"
    chunks = (
        each.text()
        for part in list_segments(str(directory))
        for each in iterate_backward(part.path, valid_end(part.path))
    )
    return b"".join(chunks).decode()
