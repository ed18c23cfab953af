"""A split of requests by version on a real HAProxy, one for all tests here."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.haproxy.split import SPLITS
from reconciler.engines.host.dataplane.protocol import Service
from tests.engines.host.dataplane.haproxy.kit import (
    KEY,
    SERVICE,
    Plane,
    WebReplica,
    get,
    play,
)
from tests.engines.host.dataplane.kit import PATIENCE, Replica, ask, until


@pytest.fixture(scope="module", name="path")
def one_path(shared_path: Path) -> Path:
    """All tests here have the same HAProxy."""
    return shared_path


def daemon(path: Path, service: Service = SERVICE) -> Plane:
    """A data plane that serves the workload from its start, so that it adopts the HAProxy of the one before."""
    plane = Plane(path)
    plane.dataplane.publish(service)
    return plane


async def replicas(*names: str) -> list[WebReplica]:
    """Replicas whose names end with their versions."""
    return [await WebReplica(name, int(name[-1])).start() for name in names]


async def split(plane: Plane, percents: dict[int, int], service: Service = SERVICE) -> None:
    """Split the requests, and wait until that is in force."""
    plane.dataplane.publish(msgspec.structs.replace(service, split=tuple(percents.items())))
    await in_force(plane)


async def in_force(plane: Plane) -> None:
    """Return when the live process is as wanted: a reload may have to wait for the one before."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await plane.dataplane.synchronize(KEY)
            if plane.dataplane._proxy.current and plane.dataplane._proxy.due is None:
                return
            await asyncio.sleep(0.02)


async def answers(address: str, count: int, *headers: str) -> Counter[str]:
    """How often each replica answers a client of its own."""
    return Counter([(await get(address, *headers)).body for _ in range(count)])


def near(found: Counter[str], expected: dict[str, int]) -> bool:
    """Whether the replicas answered so often: HAProxy takes turns, and may be anywhere within them."""
    return found.keys() <= expected.keys() and all(abs(found[name] - count) <= 1 for name, count in expected.items())


def test_new_clients_are_split_by_the_percents(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, *(await replicas("a1", "b1", "c1", "d2")))
        await split(plane, {1: 90, 2: 10})
        assert near(await answers(address, 40), {"a1": 12, "b1": 12, "c1": 12, "d2": 4})
        await split(plane, {1: 50, 2: 50})
        assert near(await answers(address, 12), {"a1": 2, "b1": 2, "c1": 2, "d2": 6})
        await split(plane, {1: 0, 2: 100})
        assert await answers(address, 5) == {"d2": 5}
        await split(plane, {})
        assert (await get(address)).headers.get("set-cookie") is None
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body == "d2":
                pass

    play(lambda: daemon(path), story)


def test_a_client_stays_with_its_version_while_that_has_a_percent(path: Path) -> None:
    async def story(plane: Plane) -> None:
        old, new, third = await replicas("a1", "b2", "c2")
        address = await plane.address(SERVICE, old, new)
        await split(plane, {1: 0, 2: 100})
        first = await get(address)
        cookie, _, attributes = first.headers["set-cookie"].partition("; ")
        assert (cookie[-2:], attributes) == ("=2", "path=/; httponly; samesite=lax")
        assert first.headers["cache-control"] == "private"
        await split(plane, {1: 99, 2: 1})
        mine = f"Cookie: a=1; {cookie}; b=2"
        again = await get(address, mine)
        assert (again.body, again.headers.get("set-cookie")) == ("b2", None)
        assert "cookie: a=1; b=2\r" in new.heads[-1].lower()
        await get(address, f"Cookie: {cookie}")
        assert "cookie" not in new.heads[-1].lower()
        # A new replica of the version shares its clients, and one that leaves gets no more of them.
        await plane.ready(old, new, third)
        assert (await answers(address, 40, mine)).keys() == {"b2", "c2"}
        new.gate.clear()
        asked = []
        while not new.open:
            asked.append(asyncio.create_task(get(address, mine)))
            await asyncio.sleep(0.01)
        await plane.ready(old, third)
        assert await answers(address, 10, mine) == {"c2": 10}
        new.gate.set()
        assert {each.body for each in await asyncio.gather(*asked)} <= {"b2", "c2"}
        # Without the version, the client gets another one, and its cookie.
        await split(plane, {1: 100, 2: 0})
        moved = await get(address, mine)
        assert (moved.body, moved.headers["set-cookie"].partition(";")[0][-2:]) == ("a1", "=1")

    play(lambda: daemon(path), story)


@pytest.mark.parametrize(
    "value", ["2|0", "'\"", *(pytest.param(value, marks=pytest.mark.slow) for value in ("9", "x", "1" * 30))]
)
def test_a_cookie_that_names_no_version_is_replaced(path: Path, value: str) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, *(await replicas("a1", "b2")))
        await split(plane, {1: 50, 2: 50})
        name = (await get(address)).headers["set-cookie"].partition("=")[0]
        assert name in (await get(address, f"Cookie: {name}={value}")).headers["set-cookie"]

    play(lambda: daemon(path), story)


def test_requests_wait_while_no_version_with_a_percent_is_ready(path: Path) -> None:
    async def story(plane: Plane) -> None:
        old, new = await replicas("a1", "b2")
        address = await plane.address(SERVICE, old)
        await split(plane, {1: 0, 2: 100})
        asked = asyncio.create_task(get(address))
        await plane.waiting(1)
        await plane.ready(old, new)
        assert (await asked).body == "b2"
        assert old.heads == []

    play(lambda: daemon(path), story)


def test_a_split_outlasts_the_daemon_and_a_reload(path: Path) -> None:
    old, new = WebReplica("a1", 1), WebReplica("b2", 2)
    cookies: list[str] = []
    divided = msgspec.structs.replace(SERVICE, split=((1, 75), (2, 25)))

    async def before(plane: Plane) -> None:
        address = await plane.address(SERVICE, await old.start(), await new.start())
        await split(plane, {1: 75, 2: 25})
        while "b2" not in cookies:
            answer = await get(address)
            cookies[:] = answer.body, answer.headers["set-cookie"].partition(";")[0]

    async def after(plane: Plane) -> None:
        old_again, new_again = await replicas("a1", "b2")
        # The replicas are not known yet, and go on as they are.
        address = await plane.serve(divided)
        known = await plane.command(f"show map ./{SPLITS}")
        assert "shop:web|2|0 b2" in known
        await plane.ready(old_again, new_again)
        await plane.reload()
        assert near(await answers(address, 24), {"a1": 18, "b2": 6})
        assert await answers(address, 3, f"Cookie: {cookies[1]}") == {"b2": 3}
        await split(plane, {})

    play(lambda: daemon(path), before)
    play(lambda: daemon(path, divided), after)


def test_connections_of_a_tcp_port_are_split(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replicas = [await Replica(name, int(name[-1])).start() for name in ("a1", "b2", "c3")]
        service = msgspec.structs.replace(SERVICE, protocol="tcp")
        plane.dataplane.update(KEY, tuple(each.endpoint for each in replicas))
        address = await plane.serve(service)
        await split(plane, {1: 75, 2: 25}, service)
        await until(lambda: len(plane.dataplane.live_servers(KEY)) == 2)
        replicas = Counter([(await ask(address)).split()[0] for _ in range(24)])
        assert near(replicas, {"a1": 18, "b2": 6})

    play(lambda: daemon(path), story)


def test_a_deleted_workload_leaves_no_split(path: Path) -> None:
    async def story(plane: Plane) -> None:
        [replica] = await replicas("a1")
        await plane.address(SERVICE, replica)
        await split(plane, {2: 100})
        plane.dataplane.forget(KEY)
        await until(lambda: not plane.master)
        assert (await get(await plane.address(SERVICE, replica))).body == "a1"

    play(lambda: daemon(path), story)
