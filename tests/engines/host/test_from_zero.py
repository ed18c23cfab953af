"""A serverless workload on this host: no replica without requests, one for the first connection, at one address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.workload.deployment import read_deployment
from reconciler.model.key import Key
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from tests.engines.host.dataplane.kit import PORT, Client, Replica, until
from tests.engines.host.kit import WEB, HostHarness, played
from tests.support.plans import ends, plan, step

KEY = Key.parse(WEB)


async def ask_for(
    host: HostHarness, version: int = 1, tags: dict[str, str] | None = None, image: str = "plain", **options: Any
) -> None:
    """Apply the workload, which may have none to three replicas."""
    autoscaling = {"metric": "concurrency", "target": 2, "minScale": 0, "maxScale": 3, "scaleToZeroDelay": 30}
    container = {"name": "main", "image": image, "ports": [{"number": PORT, "protocol": "http"}]}
    spec = {
        "type": "serverless",
        "containers": [container],
        "defaultOptions": {"autoscaling": autoscaling, **options},
    }
    body = {"kind": "workload", "name": "web", "tags": tags or {}, "spec": spec}
    action = Action.UPDATE if host.recorded() else Action.CREATE
    wanted = step(WEB, action=action, version=version, body=body, engine="host")
    wanted = msgspec.structs.replace(wanted, digest=f"{version} {options}")
    assert set(ends(await host.run(plan(wanted))).values()) == {"applied"}


async def status(host: HostHarness) -> dict[str, Any]:
    """The recorded status of the deployment."""
    await host.record()
    [record] = host.records.applied.get(WEB)
    deployment = read_deployment(record.state)
    assert deployment is not None
    found: dict[str, Any] = msgspec.json.decode(record.state)["status"]
    return found


class ReplicaServers:
    """A server at the port of each replica that runs: the programs of the fake runtime listen on none."""

    def __init__(self, host: HostHarness, make: Callable[[str], Replica] = Replica) -> None:
        self._host = host
        self._make = make
        self.servers: dict[str, Replica] = {}

    async def pass_until(self, count: int, version: int = 1) -> None:
        """Let time pass until there are ``count`` replicas of ``version`` and no others, all of them ready."""
        for _ in range(2000):
            replicas, ready = self._host.replicas(), self._host.engine.location.endpoints.get(KEY)
            for name in self.servers.keys() - {replica.name for replica in replicas}:
                self.servers.pop(name).stop()
            for each in replicas:
                if each.name not in self.servers:
                    self.servers[each.name] = await self._make(each.name).start(each.ports[PORT])
            if [endpoint.version for endpoint in ready] == [version] * count and len(replicas) == count:
                return
            await self._host.time.advance(1.0)
            await asyncio.sleep(0.005)
        raise AssertionError(f"never {count} ready replicas: {self._host.engine.location.endpoints.get(KEY)}")


async def address_of(host: HostHarness) -> str:
    """Where the workload is served."""
    for _ in range(3000):
        if address := (await status(host))["address"]:
            return str(address)
        await host.time.advance(0.0)
        await asyncio.sleep(0.01)
    raise AssertionError("not served")


def test_a_workload_without_requests_has_no_replica_and_starts_one_for_the_first(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host)
        await ask_for(host)
        address = await address_of(host)
        await servers.pass_until(1)
        await servers.pass_until(0)
        client = await Client.to(address)
        client.send(b"wake\n")
        await servers.pass_until(1)
        [name] = servers.servers
        assert await client.answer() == f"{name} wake"
        assert (await status(host))["address"] == address
        client.close()
        await servers.pass_until(0)

    played(tmp_path, story)


def test_connections_that_a_replica_does_not_end_in_its_grace_period_are_reported(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers, steady = ReplicaServers(host), {"metric": "concurrency", "target": 2, "minScale": 1, "maxScale": 1}
        await ask_for(host, image="stubborn", autoscaling=steady)
        await servers.pass_until(1)
        [first] = servers.servers
        address = await address_of(host)
        clients = [await Client.to(address) for _ in range(2)]
        await until(lambda: servers.servers[first].open == 2)
        await ask_for(host, version=2, image="stubborn", autoscaling=steady)
        await servers.pass_until(1, version=2)
        found = [event.message for event in host.engine.news() if event.reason is Reason.REQUESTS_CUT_OFF]
        assert found == [f"{first}: 2 connections were cut off, since the termination grace period is over"]
        for client in clients:
            client.close()

    played(tmp_path, story)


def test_connections_beyond_the_target_start_more_replicas(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host)
        await ask_for(host)
        address = await address_of(host)
        await servers.pass_until(1)
        clients = [await Client.to(address) for _ in range(6)]
        await until(lambda: sum(each.open for each in servers.servers.values()) == 6)
        await servers.pass_until(3)
        assert any(each.reason == "Scaled" and "concurrency" in each.message for each in host.engine.news())
        for client in clients:
            client.close()

    played(tmp_path, story)


def test_a_suspended_workload_has_no_address_and_gets_the_same_again(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host)
        await ask_for(host)
        address = await address_of(host)
        await ask_for(host, suspend=True)
        await servers.pass_until(0)
        assert (await status(host))["address"] == ""
        await ask_for(host)
        assert await address_of(host) == address

    played(tmp_path, story)


async def hold(host: HostHarness, seconds: float) -> None:
    """An operator holds the requests of the workload."""
    host.records.traffic_holds.put(KEY, "a migration", "ada", host.time.now() + seconds)
    host.engine.refresh()


def test_requests_wait_while_an_operator_holds_them_and_no_longer(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        servers = ReplicaServers(host)
        await ask_for(host)
        address = await address_of(host)
        await servers.pass_until(1)
        [replica] = servers.servers.values()
        await hold(host, 600)
        assert (await host.event("HoldingRequests")).message.startswith("in force: new requests wait until ")
        early = await Client.to(address)
        early.send()
        await asyncio.sleep(0.05)
        await host.restart()
        assert await address_of(host) == address
        assert await early.answer() == "", "the daemon ended"
        client = await Client.to(address)
        client.send()
        host.time.jump(-3600)
        host.engine.refresh()
        await asyncio.sleep(0.05)
        assert replica.lines == 0, "the next daemon holds them too"
        await host.time.advance(601)
        assert await client.answer() == f"{replica.name} hello", "the wall clock was set, and it ends all the same"
        assert host.records.traffic_holds.remove(KEY)
        await hold(host, 600)
        again = await Client.to(address)
        again.send()
        await asyncio.sleep(0.05)
        assert replica.lines == 1
        assert host.records.traffic_holds.remove(KEY)
        host.engine.refresh()
        assert await again.answer() == f"{replica.name} hello"

    played(tmp_path, story)
