"""The built-in data plane over real sockets: one address, through rollouts, without a replica, and under load."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.builtin import BuiltinDataPlane
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import UNPROVEN, PlaneContext, Service, Traffic
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Autoscaling, Options
from reconciler.model.no_wake import parse_no_wake
from reconciler.settings import HoldSettings, HostSettings
from tests.engines.host.dataplane.kit import PATIENCE, PORT, Client, Replica, ask, until
from tests.engines.host.signals import RecordedSignals
from tests.support.processes import free_ports

KEY = Key(Kind.WORKLOAD, "shop", "web")
SERVICE = Service(KEY, PORT)


class Plane:
    """A data plane that runs, with what it reported."""

    def __init__(self, path: Path, hold: HoldSettings | None = None, first: int = 18_000, last: int = 19_999) -> None:
        self.signals = RecordedSignals()
        self.events, self.woken = self.signals.events, self.signals.listener.woken
        settings = HostSettings(hold=hold or HoldSettings(), first_service_port=first, last_service_port=last)
        file = path / "dataplane" / "ports.json"
        context = PlaneContext(
            ServicePorts(file, settings),
            settings.hold,
            SystemClock(),
            self.signals,
        )
        self.dataplane = BuiltinDataPlane(context)

    @property
    def changes(self) -> int:
        """How often an address or an error has changed."""
        return self.signals.listener.changes

    async def address(self, service: Service = SERVICE) -> str:
        """Publish ``service``; its address, once it is served."""
        self.dataplane.publish(service)
        await until(lambda: self.dataplane.address(service.key))
        return self.dataplane.address(service.key)

    async def counts(self, active: int, waiting: int) -> Traffic:
        """The counts of the workload, once so many connections are active and wait."""
        async with asyncio.timeout(PATIENCE):
            while (found := (await self.dataplane.traffic())[KEY]).active != active or found.waiting != waiting:
                await asyncio.sleep(0.005)
        return found

    def ready(self, *replicas: Replica) -> None:
        self.dataplane.update(KEY, tuple(each.endpoint for each in replicas))


def play(plane: Callable[[], Plane], story: Callable[[Plane], Awaitable[None]]) -> None:
    """Play ``story`` while a data plane runs."""

    async def whole() -> None:
        opened = plane()
        running = asyncio.create_task(opened.dataplane.run())
        try:
            await story(opened)
        finally:
            running.cancel()
            await opened.dataplane.close()

    asyncio.run(whole())


def test_connections_reach_the_ready_replicas(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        replicas = [await Replica(name).start() for name in ("a", "b")]
        plane.ready(*replicas)
        address = await plane.address()
        clients = [await Client.to(address) for _ in range(4)]
        for client in clients:
            client.send()
        assert sorted([await client.answer() for client in clients]) == ["a hello"] * 2 + ["b hello"] * 2

    play(lambda: Plane(tmp_path), story)


def test_a_replica_that_leaves_gets_no_new_connections_and_ends_its_open_ones(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        old, new = await Replica("old").start(), await Replica("new").start()
        plane.ready(old)
        address = await plane.address()
        client = await Client.to(address)
        client.send()
        assert await client.answer() == "old hello"
        plane.ready(new)
        # The port of the workload has changed: a replica without it gets no connection.
        moved = msgspec.structs.replace((await Replica("other").start()).endpoint, ports={"1": "127.0.0.1:1"})
        plane.dataplane.update(KEY, (moved, new.endpoint))
        assert (plane.dataplane.open_requests(KEY, "old"), plane.dataplane.open_requests(KEY, "new")) == (1, 0)
        assert [await ask(address) for _ in range(3)] == ["new hello"] * 3
        client.send(b"again\n")
        assert await client.answer() == "old again"
        client.close()
        await until(lambda: plane.dataplane.open_requests(KEY, "old") == 0)

    play(lambda: Plane(tmp_path), story)


def test_the_address_stays_through_a_restart_and_a_lost_file(tmp_path: Path) -> None:
    addresses = []

    async def story(plane: Plane) -> None:
        addresses.append(await plane.address())

    for lost in (False, False, True):
        if lost:
            (tmp_path / "dataplane" / "ports.json").unlink()
        play(lambda: Plane(tmp_path), story)
    assert len(set(addresses)) == 1


def test_each_workload_has_its_own_port_and_a_deleted_one_releases_it(tmp_path: Path) -> None:
    [first] = free_ports(1)
    other = msgspec.structs.replace(SERVICE, key=Key(Kind.WORKLOAD, "shop", "api"))

    async def story(plane: Plane) -> None:
        taken = await plane.address()
        plane.dataplane.publish(other)
        await until(lambda: plane.dataplane.error(other.key))
        assert "no port of this host between" in plane.dataplane.error(other.key)
        plane.dataplane.forget(KEY)
        await until(lambda: plane.dataplane.address(other.key))
        assert plane.dataplane.address(other.key) == taken
        assert plane.dataplane.error(other.key) == ""

    play(lambda: Plane(tmp_path, first=first, last=first), story)


def test_blocked_ports_are_never_endpoints(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.error(KEY))
        assert plane.dataplane.error(KEY) == "no port of this host between 9090 and 9091 is free"

    play(lambda: Plane(tmp_path, first=9090, last=9091), story)


def test_a_port_that_another_program_took_is_reported_and_taken_back(tmp_path: Path) -> None:
    addresses = []

    async def remember(plane: Plane) -> None:
        addresses.append(await plane.address())

    play(lambda: Plane(tmp_path), remember)
    [address] = addresses
    blocker = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))

    async def story(plane: Plane) -> None:
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.error(KEY))
        assert address in plane.dataplane.error(KEY)
        blocker.close()
        await until(lambda: plane.dataplane.address(KEY))
        assert plane.dataplane.address(KEY) == address
        assert plane.dataplane.error(KEY) == ""

    play(lambda: Plane(tmp_path), story)


def test_a_suspended_workload_is_not_served_and_keeps_its_port(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        plane.dataplane.withdraw(KEY)
        await until(lambda: not plane.dataplane.address(KEY))
        with pytest.raises(ConnectionRefusedError):
            await Client.to(address)
        assert await plane.address() == address

    play(lambda: Plane(tmp_path), story)


def test_connections_wait_for_the_first_replica_and_ask_for_one_once(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        clients = [await Client.to(address) for _ in range(3 * UNPROVEN)]
        for client in clients:
            client.send()
        await plane.counts(0, len(clients))
        assert plane.woken == [KEY]
        replica = await Replica("a").start()
        replica.gate.clear()
        plane.ready(replica)
        await until(lambda: replica.open == UNPROVEN)
        # More would reach it only once it has answered.
        await asyncio.sleep(0.05)
        assert replica.open == UNPROVEN
        replica.gate.set()
        assert {await client.answer() for client in clients} == {"a hello"}

    play(lambda: Plane(tmp_path), story)


def test_a_replica_never_has_more_connections_than_it_may(tmp_path: Path) -> None:
    service = msgspec.structs.replace(SERVICE, max_concurrency=2)

    async def story(plane: Plane) -> None:
        replica = await Replica("a").start()
        plane.ready(replica)
        address = await plane.address(service)
        assert await asyncio.gather(*(ask(address) for _ in range(12))) == ["a hello"] * 12
        assert replica.most == 2

    play(lambda: Plane(tmp_path), story)


def test_a_connection_that_waits_too_long_is_refused(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        client = await Client.to(await plane.address())
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.answer() == "HTTP/1.1 503 Service Unavailable"
        assert await client.answer() == "Retry-After: 1"
        await until(lambda: plane.events)
        [event] = plane.events
        assert (event.key, event.reason) == (KEY, "ConnectionsRefused")
        assert event.message.startswith("a connection was refused: ")

    play(lambda: Plane(tmp_path, HoldSettings(seconds=0.2)), story)


def test_a_connection_beyond_the_longest_line_is_refused_at_once(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        waiting = await Client.to(address)
        waiting.send()
        await until(lambda: plane.woken)
        assert "503" in await ask(address)
        replica = await Replica("a").start()
        plane.ready(replica)
        assert await waiting.answer() == "a hello"

    play(lambda: Plane(tmp_path, HoldSettings(requests=1)), story)


def test_a_tcp_client_is_refused_without_words(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(msgspec.structs.replace(SERVICE, protocol="tcp"))
        assert await ask(address) == ""

    play(lambda: Plane(tmp_path, HoldSettings(seconds=0.1)), story)


def test_a_client_that_gave_up_gets_no_replica(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        gone = [await Client.to(address) for _ in range(20)]
        for client in gone:
            client.send()
        await plane.counts(0, 20)
        for client in gone:
            client.close()
        await plane.counts(0, 0)
        replica = await Replica("a").start()
        plane.ready(replica)
        assert await ask(address) == "a hello"
        assert replica.connections == 1

    play(lambda: Plane(tmp_path), story)


def test_a_client_whose_connection_is_lost_leaves_the_line(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        lost, waiting = await Client.to(address), await Client.to(address)
        lost.send()
        await plane.counts(0, 2)
        linger = struct.pack("ii", 1, 0)
        lost.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        lost.writer.transport.abort()
        await plane.counts(0, 1)
        plane.ready(await Replica("a").start())
        waiting.send()
        assert await waiting.answer() == "a hello"

    play(lambda: Plane(tmp_path), story)


def test_all_that_a_client_sends_while_it_waits_reaches_the_replica(tmp_path: Path) -> None:
    lines = [f"{number} {'x' * 10_000}" for number in range(30)]

    async def story(plane: Plane) -> None:
        client = await Client.to(await plane.address())
        client.send("".join(f"{line}\n" for line in lines).encode())
        await plane.counts(0, 1)
        plane.ready(await Replica("a").start())
        assert [await client.answer() for _ in lines] == [f"a {line}" for line in lines]

    play(lambda: Plane(tmp_path), story)


def test_a_connection_waits_on_first_in_line_if_its_replica_refuses_it(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        endpoint = (await Replica("a").start()).stop()
        first = await Client.to(address)
        first.send(b"first\n")
        await plane.counts(0, 1)
        plane.dataplane.update(KEY, (endpoint,))
        await plane.counts(0, 1)
        second = await Client.to(address)
        second.send(b"second\n")
        await plane.counts(0, 2)
        # Its only replica takes one connection at once.
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, max_concurrency=1))
        replica = await Replica("a").start(int(endpoint.address.rpartition(":")[2]))
        assert await first.answer() == "a first"
        assert replica.lines == 1
        first.close()
        assert await second.answer() == "a second"

    play(lambda: Plane(tmp_path), story)


def test_connections_that_wait_are_refused_when_their_workload_is_suspended(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        client = await Client.to(await plane.address())
        client.send()
        await plane.counts(0, 1)
        plane.dataplane.withdraw(KEY)
        assert await client.answer() == "HTTP/1.1 503 Service Unavailable"

    play(lambda: Plane(tmp_path), story)


def test_a_replica_that_does_not_listen_is_passed_over(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        dead, live = await Replica("dead").start(), await Replica("live").start()
        endpoint = dead.stop()
        plane.dataplane.update(KEY, (endpoint, live.endpoint))
        address = await plane.address()
        assert [await ask(address) for _ in range(3)] == ["live hello"] * 3

    play(lambda: Plane(tmp_path), story)


def test_everything_is_released_at_the_end_of_a_connection(tmp_path: Path) -> None:
    service = msgspec.structs.replace(SERVICE, max_concurrency=1)

    async def story(plane: Plane) -> None:
        replica = await Replica("a").start()
        plane.ready(replica)
        address = await plane.address(service)
        for end in ("client closes", "client resets", "replica closes"):
            client = await Client.to(address)
            client.send()
            assert await client.answer() == "a hello"
            if end == "client closes":
                client.close()
            elif end == "client resets":
                client.writer.transport.abort()
            else:
                client.send(b"")
                client.writer.write_eof()
                assert await client.answer() == ""
        assert await ask(address) == "a hello"
        await until(lambda: replica.open == 0)

    play(lambda: Plane(tmp_path), story)


def on_hold(seconds: float) -> Service:
    """The workload with its requests held for some seconds from now."""
    return msgspec.structs.replace(SERVICE, hold_until=SystemClock().monotonic() + seconds)


def test_connections_wait_for_the_end_of_a_hold_and_those_that_are_open_go_on(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await Replica("a").start()
        plane.ready(replica)
        address = await plane.address()
        before = await Client.to(address)
        before.send()
        assert await before.answer() == "a hello"
        plane.dataplane.publish(on_hold(3600))
        waiting = [await Client.to(address) for _ in range(3)]
        for client in waiting:
            client.send()
        await plane.counts(1, 3)
        before.send()
        assert await before.answer() == "a hello"
        assert replica.connections == 1
        assert plane.woken == [], "a replica is ready"
        plane.dataplane.publish(SERVICE)
        assert [await client.answer() for client in waiting] == ["a hello"] * 3

    play(lambda: Plane(tmp_path), story)


def test_a_hold_ends_by_itself(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        plane.ready(await Replica("a").start())
        service = on_hold(0.3)
        assert await ask(await plane.address(service)) == "a hello"
        assert SystemClock().monotonic() >= service.hold_until

    play(lambda: Plane(tmp_path), story)


def test_connections_wait_as_long_as_the_hold(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        plane.ready(await Replica("a").start())
        client = await Client.to(await plane.address(on_hold(3600)))
        await plane.counts(0, 1)
        await asyncio.sleep(0.2)
        await plane.counts(0, 1)
        assert plane.events == []
        client.close()

    play(lambda: Plane(tmp_path, HoldSettings(seconds=0.05)), story)


def test_the_end_of_a_hold_without_a_replica_leaves_the_usual_time(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(on_hold(3600))
        client = await Client.to(address)
        await plane.counts(0, 1)
        assert plane.woken == [KEY]
        plane.dataplane.publish(SERVICE)
        assert await client.answer() == "HTTP/1.1 503 Service Unavailable"

    play(lambda: Plane(tmp_path, HoldSettings(seconds=0.1)), story)


def test_connections_are_counted_from_their_arrival_to_their_end(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        waiting = await Client.to(address)
        await until(lambda: plane.woken)
        assert (await plane.dataplane.traffic())[KEY] == Traffic(1, 0, 1, 0.0)
        replica = await Replica("a").start()
        plane.ready(replica)
        clients = [waiting, *[await Client.to(address) for _ in range(5)]]
        await until(lambda: replica.open == 6)
        before = (await plane.dataplane.traffic())[KEY]
        await asyncio.sleep(0.02)
        after = (await plane.dataplane.traffic())[KEY]
        assert (after.arrived, after.active, after.waiting) == (6, 6, 0)
        assert after.active_seconds is not None
        assert before.active_seconds is not None
        assert after.active_seconds - before.active_seconds >= 6 * 0.02
        for client in clients:
            client.close()
        await until(lambda: replica.open == 0)
        assert (await plane.counts(0, 0)).arrived == 6

    play(lambda: Plane(tmp_path), story)


def test_requests_that_shall_not_wake_are_not_enforced(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        options = Options(autoscaling=Autoscaling(min_scale=0))
        spec = WorkloadSpec(KEY, Type.SERVERLESS, 1, "digest", "hash", 1, (ContainerSpec("main"),), options)
        await plane.address(msgspec.structs.replace(SERVICE, no_wake=parse_no_wake("/healthz")))
        assert [each for each in plane.dataplane.limitations(spec) if "reconciler/no-wake" in each] != []
        await plane.address()
        assert [each for each in plane.dataplane.limitations(spec) if "reconciler/no-wake" in each] == []

    play(lambda: Plane(tmp_path), story)


def test_a_split_by_version_is_not_enforced(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        spec = WorkloadSpec(KEY, Type.STANDARD, 1, "digest", "hash", 1, (ContainerSpec("main"),), Options())
        for percents, count in ((((1, 90), (2, 10)), 1), ((), 0)):
            await plane.address(msgspec.structs.replace(SERVICE, split=percents))
            assert len([each for each in plane.dataplane.limitations(spec) if "split by version" in each]) == count

    play(lambda: Plane(tmp_path), story)


def test_a_workload_without_an_address_has_no_counts(tmp_path: Path) -> None:
    async def story(plane: Plane) -> None:
        await plane.address()
        plane.dataplane.withdraw(KEY)
        assert await plane.dataplane.traffic() == {}

    play(lambda: Plane(tmp_path), story)
