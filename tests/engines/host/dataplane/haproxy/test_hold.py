"""A hold by an operator with a real HAProxy: requests wait in its queues, and go on once, with and without a daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.config import QUEUES
from reconciler.engines.host.dataplane.protocol import Service, Traffic
from reconciler.model.key import Key, Kind
from reconciler.settings import HoldSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Answer, Browser, Plane, WebReplica, get, play
from tests.engines.host.dataplane.kit import PATIENCE, PORT, Client, Replica, until
from tests.engines.host.dataplane.load.program import Program
from tests.engines.host.dataplane.load.traffic import FORMS, Tally

MANY_AT_ONCE = ("HTTP/2", "gRPC")
"""What sends several requests on one connection."""
MANY = 600
"""More than leave a queue at once."""


def on_hold(plane: Plane, seconds: float, service: Service = SERVICE) -> Service:
    """``service`` with a hold that ends in so many seconds."""
    return msgspec.structs.replace(service, hold_until=plane.clock.monotonic() + seconds)


async def hold(plane: Plane, seconds: float = 600, service: Service = SERVICE) -> None:
    """Hold the requests of ``service``."""
    plane.dataplane.publish(on_hold(plane, seconds, service))
    await plane.hold_in_force(service.key)


def ask(address: str, count: int) -> list[asyncio.Task[Answer]]:
    """So many requests at once."""
    return [asyncio.create_task(get(address)) for _ in range(count)]


async def bodies(asked: list[asyncio.Task[Answer]]) -> list[str]:
    """What was answered."""
    async with asyncio.timeout(PATIENCE):
        return [answer.body for answer in await asyncio.gather(*asked)]


def test_each_of_many_requests_is_answered_once_when_the_hold_ends_without_a_daemon(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        await hold(plane, 12)
        asked = ask(address, MANY)
        await plane.waiting(MANY)
        plane.stop()
        assert replica.heads == []
        assert await bodies(asked) == ["a"] * MANY
        assert len(replica.heads) == MANY
        # Those that come later do not wait, although no daemon has removed the hold.
        assert await bodies(ask(address, 3)) == ["a"] * 3

    play(lambda: Plane(path, HoldSettings(requests=1000, seconds=20)), story)


@pytest.mark.slow
def test_requests_of_two_holds_in_one_queue_go_on_each_in_its_time(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replicas, addresses = {}, {}
        for number in range(QUEUES + 1):
            key = Key(Kind.WORKLOAD, "shop", f"web-{number}")
            replicas[key] = await WebReplica(key.name).start()
            addresses[key] = await plane.address(msgspec.structs.replace(SERVICE, key=key), replicas[key])
        rests = {key: int(address.rpartition(":")[2]) % QUEUES for key, address in addresses.items()}
        first, second = next((a, b) for a in rests for b in rests if a < b and rests[a] == rests[b])
        for key in (first, second):
            await hold(plane, service=msgspec.structs.replace(SERVICE, key=key))
        asked, later = ask(addresses[first], 5), ask(addresses[second], 5)
        await plane.waiting(5, first)
        await plane.waiting(5, second)
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=first))
        assert await bodies(asked) == [first.name] * 5
        await plane.waiting(5, second)
        assert replicas[second].heads == []
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=second))
        assert await bodies(later) == [second.name] * 5

    play(lambda: Plane(path), story)


def test_requests_on_hold_wait_on_in_the_new_worker(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        await hold(plane)
        asked = ask(address, 10)
        await plane.waiting(10)
        for _ in range(2):
            await plane.reload()
            asked += ask(address, 5)
            await plane.hold_in_force()
        assert replica.heads == []
        plane.dataplane.publish(SERVICE)
        assert await bodies(asked) == ["a"] * 20
        assert len(replica.heads) == 20

    play(lambda: Plane(path), story)


def test_a_client_that_leaves_during_a_hold_reaches_no_replica(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        await hold(plane)
        gone, stays = await Browser.to(address), await Browser.to(address)
        stays.send()
        await plane.waiting(1)
        gone.send("X-Gone: 1")
        await plane.waiting(2)
        gone.close()
        await plane.waiting(1)
        plane.dataplane.publish(SERVICE)
        assert (await stays.answer()).body == "a"
        assert len(replica.heads) == 1
        stays.close()

    play(lambda: Plane(path), story)


def test_more_requests_than_may_wait_are_refused_during_a_hold(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, await WebReplica("a").start())
        await hold(plane)
        asked = ask(address, 3)
        await plane.waiting(3)
        assert (await get(address)).status == 503
        plane.dataplane.publish(SERVICE)
        assert await bodies(asked) == ["a"] * 3

    play(lambda: Plane(path, HoldSettings(requests=3, seconds=20)), story)


def test_requests_wait_for_a_replica_after_the_hold_and_are_counted_once(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE)
        await hold(plane)
        asked = ask(address, 4)
        await plane.waiting(4)
        await until(lambda: plane.woken)
        plane.dataplane.publish(SERVICE)
        await plane.waiting(4)
        replica = WebReplica("a")
        replica.gate.clear()
        await plane.ready(await replica.start())
        await until(lambda: replica.open == 4)
        await until_counts(plane, Traffic(4, 4, 0))
        replica.gate.set()
        assert await bodies(asked) == ["a"] * 4
        await until_counts(plane, Traffic(4, 0, 0))

    play(lambda: Plane(path), story)


async def until_counts(plane: Plane, traffic: Traffic) -> None:
    """Wait until the traffic is ``traffic``."""
    async with asyncio.timeout(PATIENCE):
        while (await plane.dataplane.traffic())[KEY] != traffic:
            await asyncio.sleep(0.02)


def test_a_second_hold_holds_what_the_first_one_let_go_only_once_more(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        asked = []
        for round_ in range(1, 4):
            await hold(plane)
            asked += ask(address, 5)
            await plane.waiting(5)
            assert len(replica.heads) == 5 * (round_ - 1)
            plane.dataplane.publish(SERVICE)
            assert await bodies(asked) == ["a"] * 5 * round_

    play(lambda: Plane(path), story)


def test_connections_of_a_tcp_port_wait_for_the_end_of_a_hold(path: Path) -> None:
    service = msgspec.structs.replace(SERVICE, protocol="tcp")

    async def story(plane: Plane) -> None:
        replica = await Replica("a").start()
        plane.dataplane.update(KEY, (replica.endpoint,))
        address = await plane.serve(service)
        await hold(plane, 9, service)
        clients = [await Client.to(address) for _ in range(5)]
        for client in clients:
            client.send()
        await plane.waiting(5)
        plane.stop()
        assert [await client.answer() for client in clients] == ["a hello"] * 5
        for client in clients:
            client.close()

    play(lambda: Plane(path), story)


@pytest.mark.parametrize("form", FORMS)
def test_requests_of_each_form_wait_for_the_end_of_a_hold(path: Path, form: str) -> None:
    service = msgspec.structs.replace(SERVICE, protocol={"HTTP/2": "http2", "gRPC": "grpc"}.get(form, "http"))
    program, tally = Program("web"), Tally(form)

    async def story(plane: Plane) -> None:
        address = f"127.0.0.1:{await program.start()}"
        plane.dataplane.update(KEY, (Endpoint("a", address, {str(PORT): address}, 1),))
        clients = [FORMS[form](await plane.serve(service)) for _ in range(3)]
        await hold(plane, service=service)
        asked = [
            asyncio.create_task(client.ask(tally)) for client in clients for _ in range(1 + 4 * (form in MANY_AT_ONCE))
        ]
        await plane.waiting(len(asked))
        assert (tally.answered, tally.lost, program.answered) == (0, [], 0)
        plane.dataplane.publish(service)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*asked)
        assert (tally.answered, tally.lost) == (len(asked), [])
        assert program.answered == (len(asked) if form != "WebSocket" else 0)
        for each in clients:
            each.close()

    play(lambda: Plane(path), story)
