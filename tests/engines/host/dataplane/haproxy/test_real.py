"""The data plane with a real HAProxy, one for all tests here: each adopts the process of the test before it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.config import LOG_SOCKET, MASTER_SOCKET, PORTS
from reconciler.engines.host.dataplane.haproxy.proxy import RELEASE_MEMORY
from reconciler.engines.host.dataplane.haproxy.rendering.profiles import FEW_WAITING
from reconciler.engines.host.dataplane.haproxy.workers.former import FormerWorkers
from reconciler.engines.host.dataplane.haproxy.workers.progress import LONG_SECONDS, SILENT_SECONDS, WorkerProgress
from reconciler.engines.host.dataplane.protocol import UNPROVEN, Traffic
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.grpc import check_health
from reconciler.engines.host.runtimes.procfs import find_process
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.no_wake import NoWake
from reconciler.settings import HoldSettings
from tests.engines.host.dataplane.haproxy.kit import (
    KEY,
    OTHER,
    SERVICE,
    Answer,
    Browser,
    Plane,
    WebReplica,
    answer_of,
    end,
    get,
    play,
)
from tests.engines.host.dataplane.kit import PATIENCE, PORT, Client, Replica, until
from tests.engines.host.dataplane.load.program import Program
from tests.engines.host.dataplane.load.traffic import Socket, Tally
from tests.engines.host.probes.servers import Status, health_server

SOCKETS = Key(Kind.WORKLOAD, "shop", "sockets")
"""A workload of which former workers have nothing that other tests left."""


@pytest.fixture(scope="module", name="path")
def one_path(shared_path: Path) -> Path:
    """All tests here have the same HAProxy."""
    return shared_path


def test_requests_reach_ready_replicas_only_and_open_ones_end(path: Path) -> None:
    async def story(plane: Plane) -> None:
        old, new = await WebReplica("old").start(), await WebReplica("new").start()
        address = await plane.address(SERVICE, old)
        assert (await get(address)).body == "old"
        old.gate.clear()
        open_one = asyncio.create_task(get(address))
        await until(lambda: old.open)
        await plane.ready(new)
        assert [(await get(address)).body for _ in range(3)] == ["new"] * 3
        old.gate.set()
        assert (await open_one).body == "old"
        # It is removed at last, as soon as HAProxy has no idle connection to it.
        former = plane.dataplane.live_servers(KEY).get("old")
        assert former is None or not former.ready

    play(lambda: Plane(path), story)


def test_a_daemon_that_comes_later_takes_its_own_haproxy_for_no_other_program(path: Path) -> None:
    """As after a restart of the daemon, and after a change of the settings, which opens the location anew."""

    async def serve(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())

    async def take_over(plane: Plane) -> None:
        errors: set[str] = set()
        replica = await WebReplica("b").start()
        plane.dataplane.publish(SERVICE)
        plane.dataplane.update(KEY, (replica.endpoint,))
        deadline = time.monotonic() + PATIENCE
        while not plane.dataplane.address(KEY) and time.monotonic() < deadline:
            errors.add(plane.dataplane.error(KEY))
            await asyncio.sleep(0)  # whoever observes the location meanwhile sees the same
        assert [error for error in errors if "program" in error] == []
        assert (await get(plane.dataplane.address(KEY))).status == 200

    play(lambda: Plane(path), serve)
    play(lambda: Plane(path), take_over)


def test_replicas_get_the_address_of_the_client_and_an_id_of_the_request(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        await get(address)
        await get(address, "X-Forwarded-For: 192.0.2.1", "X-Request-Id: 7")
        await get(address, f"X-Request-Id: {'7' * 129}")
        first, second, third = (head.lower() for head in replica.heads)
        assert "x-forwarded-for: 127.0.0.1" in first
        assert "x-request-id: " in first
        assert "x-forwarded-for: 192.0.2.1" in second
        assert "x-request-id: 7\r" in second
        assert "7777" not in third

    play(lambda: Plane(path), story)


def test_a_response_names_its_replica_if_that_is_enabled_and_asked_for(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica, named = await WebReplica("a").start(), []
        for debug in (True, False):
            address = await plane.address(msgspec.structs.replace(SERVICE, debug=debug), replica)
            # A change of the profile is a reload.
            await until(lambda: plane.dataplane._proxy.current and plane.dataplane._proxy.due is None)
            for asked in (("x-platform-debug: true",), ("x-platform-debug: 1",), ()):
                headers = (await get(address, *asked)).headers
                named.append((headers.get("x-platform-location"), headers.get("x-platform-replica")))
        assert named == [("here", "a"), *[(None, None)] * 5]

    play(lambda: Plane(path), story)


def test_requests_wait_for_the_first_replica_and_reach_it_a_few_at_a_time(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        asked = [asyncio.create_task(get(address)) for _ in range(3 * UNPROVEN)]
        await until(lambda: plane.woken)
        await plane.waiting(len(asked))
        assert set(plane.woken) == {KEY}
        replica = await WebReplica("a").start()
        replica.gate.clear()
        await plane.ready(replica)
        await until(lambda: replica.open == UNPROVEN)
        await plane.waiting(2 * UNPROVEN)
        assert replica.most == UNPROVEN
        replica.gate.set()
        assert {(await each).body for each in asked} == {"a"}
        await until(lambda: not plane.dataplane.live_servers(KEY)["a"].limit)

    play(lambda: Plane(path), story)


def test_requests_beyond_the_first_few_reach_a_replica_as_soon_as_it_has_answered_one(path: Path) -> None:
    class SlowReplica(WebReplica):
        """Answers its first request at once, and all others when the gate opens."""

        async def _wait(self) -> None:
            if len(self.heads) > 1:
                await super()._wait()

    async def story(plane: Plane) -> None:
        replica = SlowReplica("a")
        replica.gate.clear()
        address = await plane.address(SERVICE, await replica.start())
        asked = [asyncio.create_task(get(address)) for _ in range(2 * UNPROVEN)]
        # The others need none of the first few to end.
        await until(lambda: replica.open == 2 * UNPROVEN - 1)
        await plane.waiting(0)
        replica.gate.set()
        assert {(await each).body for each in asked} == {"a"}

    play(lambda: Plane(path), story)


def test_waiting_requests_outlast_a_reload_and_a_daemon(path: Path) -> None:
    replica = WebReplica("a")

    async def story(plane: Plane) -> None:
        address = await plane.address()
        asked = [asyncio.create_task(get(address)) for _ in range(5)]
        await plane.waiting(5)
        await plane.reload()
        master = plane.master
        again = Plane(path)
        await plane.dataplane.close()
        again.dataplane.publish(SERVICE)
        running = asyncio.create_task(again.dataplane.run())
        await until(lambda: again.woken)
        await again.ready(await replica.start())
        assert {(await each).body for each in asked} == {"a"}
        assert again.master == master
        running.cancel()
        await again.dataplane.close()

    play(lambda: Plane(path), story)


def test_a_request_that_waits_too_long_is_refused_with_a_page(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        text, data = await asyncio.gather(get(address), get(address, "Accept: application/json", 'X-Request-Id: r"1\\'))
        assert (text.status, text.headers["retry-after"], text.headers["content-type"]) == (503, "1", "text/plain")
        assert text.body.startswith("503: no replica was free in time (request ")
        assert data.headers["content-type"] == "application/json"
        assert json.loads(data.body) == {"status": 503, "message": "no replica was free in time", "id": 'r"1\\'}
        shown = re.search(r"\(request (.*)\)", text.body)
        assert shown is not None
        await until(lambda: len(plane.lines) == 2)
        expected = {f"503 GET /: no replica was free in time (request {name})" for name in (shown[1], 'r"1\\')}
        assert set(plane.lines) == {(KEY, line) for line in expected}
        await until(lambda: plane.events)
        assert {(each.key, each.reason) for each in plane.events} == {(KEY, "ConnectionsRefused")}
        # A comparison may come between the two.
        assert plane.events[0].message.startswith(("2 requests were refused: ", "a request was refused: "))

    play(lambda: Plane(path, HoldSettings(seconds=0.5)), story)


def test_a_request_beyond_the_longest_line_is_refused_at_once(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        waiting = asyncio.create_task(get(address))
        await plane.waiting(1)
        assert (await get(address)).status == 503
        await plane.ready(await WebReplica("a").start())
        assert (await waiting).body == "a"

    play(lambda: Plane(path, HoldSettings(requests=1)), story)


def test_requests_that_wait_use_no_processor(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        asked = [asyncio.create_task(get(address)) for _ in range(300)]
        await plane.waiting(len(asked))
        worker = find_process(plane.worker)
        await asyncio.sleep(2)
        after = find_process(plane.worker)
        assert worker is not None
        assert after is not None
        # That of a script for each of them is more than half of the time.
        assert after.cpu_seconds - worker.cpu_seconds < 0.25
        await plane.ready(await WebReplica("a").start())
        assert {(await each).body for each in asked} == {"a"}

    play(lambda: Plane(path, HoldSettings(requests=1000)), story)


def test_a_request_that_waited_has_the_timeout_of_every_other_one(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(msgspec.structs.replace(SERVICE, timeout_seconds=1))
        asked = [asyncio.create_task(get(address)) for _ in range(3)]
        # Longer than the timeout: it begins with the replica.
        await plane.waiting(3)
        await asyncio.sleep(1.2)
        assert not any(task.done() for task in asked)
        slow = await WebReplica("slow").start()
        slow.gate.clear()
        began = asyncio.get_running_loop().time()
        await plane.ready(slow)
        assert [(await task).status for task in asked] == [504] * 3
        assert asyncio.get_running_loop().time() - began < 10
        slow.gate.set()

    play(lambda: Plane(path), story)


@pytest.mark.slow
def test_few_requests_of_each_workload_wait_in_a_crowd_and_an_event_names_the_noisy_one(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        proxy = plane.dataplane._proxy
        limits = msgspec.structs.replace(proxy.limits, crowd=FEW_WAITING)
        proxy._options = msgspec.structs.replace(proxy._options, limits=limits)
        other = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER))
        asked = [asyncio.create_task(get(address)) for _ in range(FEW_WAITING + 10)]
        await until(lambda: proxy.crowded)
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).status != 503:
                pass
        neighbour = asyncio.create_task(get(other))
        await plane.waiting(1, OTHER)
        assert [(event.key, event.reason) for event in plane.events][:1] == [(KEY, "ManyRequestsWait")]
        await plane.ready(await WebReplica("a").start())
        await plane.ready(await WebReplica("b").start(), key=OTHER)
        assert {(await task).body for task in asked} == {"a"}
        assert (await neighbour).body == "b"

    play(lambda: Plane(path, HoldSettings(requests=1000)), story)


def limit_connections(plane: Plane, **limits: int) -> None:
    """Limit connections before HAProxy starts."""
    opened = plane.dataplane._open

    def opens(*words: object) -> None:
        opened(*words)
        proxy = plane.dataplane._proxy
        changed = msgspec.structs.replace(proxy.limits, **limits)
        proxy.open(msgspec.structs.replace(proxy._options, limits=changed), plane.dataplane._context.ports.spare)

    plane.dataplane._open = opens


@pytest.mark.parametrize("protocol", ["http", "tcp"])
def test_one_workload_gets_no_more_than_its_share_of_the_connections(path: Path, protocol: str) -> None:
    def limited() -> Plane:
        plane = Plane(path)
        limit_connections(plane, most=20, full=12, share=4)
        return plane

    async def story(plane: Plane) -> None:
        replica, other = await WebReplica("a").start(), await WebReplica("b").start()
        replica.gate.clear()
        address = await plane.address(msgspec.structs.replace(SERVICE, protocol=protocol), replica)
        neighbour = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), other)
        # A few requests are no flood.
        asked = [asyncio.create_task(get(address)) for _ in range(10)]
        await until(lambda: plane.dataplane.open_requests(KEY, "a") == len(asked))
        asked += [asyncio.create_task(get(address)) for _ in range(8)]
        await until(lambda: plane.dataplane._proxy.full)
        await plane.dataplane.synchronize(KEY)
        refused = await get(address)
        assert refused.status == (503 if protocol == "http" else 0)
        if protocol == "http":
            assert refused.body.startswith("503: too many requests to this workload are open (request ")
            assert refused.headers["connection"] == "close"
        assert (await get(neighbour)).body == "b"
        named = [(event.key, event.reason) for event in plane.events if event.reason == "ManyConnections"]
        assert named == [(KEY, "ManyConnections")]
        replica.gate.set()
        assert {(await task).body for task in asked} == {"a"}
        await until(lambda: not plane.dataplane._proxy.full)
        if protocol == "http":  # HAProxy counts no refused connections of a workload
            await until(lambda: "ConnectionsRefused" in {event.reason for event in plane.events})
        assert (await get(address)).body == "a"

    play(limited, story)


def test_one_workload_never_gets_all_connections_also_without_the_daemon(path: Path) -> None:
    def limited() -> Plane:
        plane = Plane(path)
        limit_connections(plane, most=20)
        return plane

    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        replica.gate.clear()
        address = await plane.address(SERVICE, replica)
        plane.stop()
        asked = [asyncio.create_task(get(address)) for _ in range(30)]
        for future in islice(asyncio.as_completed(asked), 10):
            assert (await future).status == 503
        replica.gate.set()
        assert sorted([(await task).status for task in asked]) == [200] * 20 + [503] * 10

    play(limited, story)


async def counts(plane: Plane, traffic: Traffic) -> None:
    """Wait until the traffic of the workload is ``traffic``: HAProxy counts a moment after others see a request."""
    current, deadline = (await plane.dataplane.traffic())[KEY], time.monotonic() + PATIENCE
    while current != traffic:
        assert time.monotonic() < deadline, (current, traffic)
        await asyncio.sleep(0.005)
        current = (await plane.dataplane.traffic())[KEY]


def test_requests_that_start_no_replica_are_refused_while_none_is_ready_and_never_counted(path: Path) -> None:
    agents = NoWake(agents=("Monitor it's",))

    async def story(plane: Plane) -> None:
        address = await plane.address(msgspec.structs.replace(SERVICE, no_wake=agents))
        # The last request that found out the address may be open for another moment.
        before = Traffic((await plane.dataplane.traffic())[KEY].arrived, 0, 0)
        await counts(plane, before)
        assert (await get(address, "User-Agent: A monitor IT'S 1.0")).status == 503
        assert (await plane.dataplane.traffic())[KEY] == before
        assert plane.woken == []
        replica = await WebReplica("a").start()
        await plane.ready(replica)
        assert (await get(address, "User-Agent: A monitor IT'S 1.0")).body == "a"
        replica.gate.clear()
        asked = [asyncio.create_task(get(address, "User-Agent: monitor it's")) for _ in range(3)]
        await until(lambda: replica.open == 3)
        assert (await plane.dataplane.traffic())[KEY] == before
        asked.append(asyncio.create_task(get(address)))
        await until(lambda: replica.open == 4)
        await counts(plane, Traffic(before.arrived + 1, 1, 0))
        replica.gate.set()
        assert {(await each).body for each in asked} == {"a"}
        await counts(plane, Traffic(before.arrived + 1, 0, 0))

    play(lambda: Plane(path), story)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(("Content-Length: 3", "Content-Length: 4"), id="two lengths"),
        pytest.param(("Content-Length: 3, 4",), id="a list of lengths"),
        pytest.param(("Content-Length: +3",), id="a sign"),
        pytest.param(("X: 1", "Bad Name: 3"), id="a name with a blank"),
    ],
)
def test_requests_of_two_meanings_reach_no_replica(path: Path, headers: tuple[str, ...]) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        assert (await get(await plane.address(SERVICE, replica), *headers)).status == 400
        assert replica.heads == []

    play(lambda: Plane(path), story)


def test_a_client_that_gave_up_leaves_the_line_and_others_stay(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address()
        gone, others = [[await Browser.to(address) for _ in range(10)] for _ in range(2)]
        for browser in (*gone, *others):
            browser.send()
        await plane.waiting(20)
        for browser in gone:
            browser.close()
        # One that was just arriving again may be counted until its time is over; no replica gets it.
        await plane.waiting(10, beside=1)
        assert not plane.dataplane.error(KEY)
        replica = await WebReplica("a").start()
        await plane.ready(replica)
        assert {(await other.answer()).body for other in others} == {"a"}
        assert len(replica.heads) == 10

    play(lambda: Plane(path), story)


def test_a_replica_never_has_more_requests_than_it_may(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(msgspec.structs.replace(SERVICE, max_concurrency=2), replica)
        replica.gate.clear()
        asked = [asyncio.create_task(get(address)) for _ in range(12)]
        await plane.waiting(10)
        await until(lambda: replica.open == 2)
        replica.gate.set()
        assert {(await each).body for each in asked} == {"a"}
        assert replica.most == 2

    play(lambda: Plane(path), story)


def test_a_late_response_is_a_timeout_and_a_replica_that_is_gone_another_one(path: Path) -> None:
    async def story(plane: Plane) -> None:
        slow, gone = await WebReplica("slow").start(), WebReplica("gone")
        slow.gate.clear()
        address = await plane.address(msgspec.structs.replace(SERVICE, timeout_seconds=1), slow)
        late = await get(address)
        assert (late.status, late.body[:5]) == (504, "504: ")
        slow.gate.set()
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        lost = msgspec.structs.replace(
            slow.endpoint, name="gone", ports=dict.fromkeys(slow.endpoint.ports, f"127.0.0.1:{port}")
        )
        plane.dataplane.update(KEY, (lost, slow.endpoint))
        await plane.dataplane.synchronize(KEY)
        assert [(await get(address)).body for _ in range(4)] == ["slow"] * 4
        assert gone.heads == []

    play(lambda: Plane(path), story)


def test_a_failed_request_is_tried_again_by_its_policy(path: Path) -> None:
    class FailingReplica(WebReplica):
        """Ends its first connection without an answer, and answers the next request with 503."""

        async def _wait(self) -> None:
            if len(self.heads) == 1:
                raise ConnectionResetError
            self.status = b"503 Service Unavailable" if len(self.heads) == 2 else b"200 OK"

    async def story(plane: Plane) -> None:
        replica = FailingReplica("a")
        await replica.start()
        service = msgspec.structs.replace(SERVICE, retry_on=("reset", "retriable-status-codes", "503"))
        assert (await get(await plane.address(service, replica))).status == 200
        assert len(replica.heads) == 3

    play(lambda: Plane(path), story)


def test_connections_of_a_tcp_port_wait_and_are_refused_without_words(path: Path) -> None:
    service = msgspec.structs.replace(SERVICE, protocol="tcp")

    async def story(plane: Plane) -> None:
        address = await plane.address(service)
        client = await Client.to(address)
        # Each part wakes it, and it waits on.
        for part in (b"he", b"ll", b"o\n"):
            client.send(part)
            await plane.waiting(1)
            beyond = await Client.to(address)
            assert await beyond.answer() == ""
        replica = await Replica("a").start()
        plane.dataplane.update(KEY, (replica.endpoint,))
        assert await client.answer() == "a hello"
        client.send(b"again\n")
        assert await client.answer() == "a again"
        client.close()

    play(lambda: Plane(path, HoldSettings(requests=1)), story)


def test_an_operator_holds_requests_although_a_replica_is_ready(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        on_hold = msgspec.structs.replace(SERVICE, hold_until=plane.clock.monotonic() + 600)
        plane.dataplane.publish(on_hold)
        await plane.hold_in_force()
        asked = asyncio.create_task(get(address))
        await plane.waiting(1)
        # Longer than a request waits for a replica otherwise.
        await asyncio.sleep(0.7)
        assert replica.heads == []
        assert plane.woken == []
        plane.dataplane.publish(SERVICE)
        assert (await asked).body == "a"

    play(lambda: Plane(path, HoldSettings(seconds=0.5)), story)


def test_a_hold_outlasts_a_reload_and_ends_without_the_daemon(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, hold_until=plane.clock.monotonic() + 9))
        await plane.reload()
        asked = asyncio.create_task(get(address))
        await plane.waiting(1)
        assert replica.heads == []
        plane.stop()
        assert (await asked).body == "a"

    play(lambda: Plane(path), story)


def test_latency_is_measured_where_it_is_wanted(path: Path) -> None:
    samples: list[tuple[Key, str, float]] = []

    async def story(plane: Plane) -> None:
        replica = await WebReplica("web-x7k2p").start()
        plane.dataplane.listen(lambda key, name, milliseconds: samples.append((key, name, milliseconds)))
        measured = msgspec.structs.replace(SERVICE, key=OTHER, measures_latency=True)
        quiet, loud = await plane.address(SERVICE, replica), await plane.address(measured, replica)
        replica.status = b"404 Not Found"
        await get(quiet)
        await get(loud)
        await until(lambda: samples)
        assert [each[:2] for each in samples] == [(OTHER, "web-x7k2p")]
        # An error of the replica itself is none of HAProxy.
        assert plane.lines == []
        assert 0 <= samples[0][2] < 5000
        traffic = await plane.dataplane.traffic()
        await until(lambda: plane.dataplane.live_servers(OTHER))
        assert set(traffic) == {KEY, OTHER}

    play(lambda: Plane(path), story)


def test_a_full_log_socket_delays_no_request_and_is_read_again(path: Path) -> None:
    samples: list[str] = []

    async def story(plane: Plane) -> None:
        plane.dataplane.listen(lambda _key, name, _milliseconds: samples.append(name))
        measured = msgspec.structs.replace(SERVICE, measures_latency=True)
        address = await plane.address(measured, await WebReplica("a").start())
        log = plane.dataplane._log._socket
        assert log is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(log.fileno())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as other:
            other.connect(str(plane.directory / LOG_SOCKET))
            with suppress(BlockingIOError):
                while True:
                    other.send(b"a line")
        # HAProxy drops its lines.
        assert [(await get(address)).status for _ in range(20)] == [200] * 20
        loop.add_reader(log.fileno(), plane.dataplane._log._read, log)
        async with asyncio.timeout(PATIENCE):
            while not samples:
                assert (await get(address)).status == 200

    play(lambda: Plane(path), story)


def test_requests_are_counted(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        before = (await plane.dataplane.traffic())[KEY]
        for _ in range(3):
            await get(address)
        replica.gate.clear()
        asked = asyncio.create_task(get(address))
        await until(lambda: replica.open)
        now = (await plane.dataplane.traffic())[KEY]
        assert (now.arrived - before.arrived, now.active, now.waiting) == (4, 1, 0)
        replica.gate.set()
        await asked

    play(lambda: Plane(path), story)


@pytest.mark.parametrize("victim", ["worker", "master"])
def test_a_killed_process_is_replaced_and_the_configuration_restored(path: Path, victim: str) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        os.kill(plane.worker if victim == "worker" else plane.master, signal.SIGKILL)
        await until(lambda: plane.events)
        # A worker without its master may still take a connection before it ends.
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body != "a":
                await asyncio.sleep(0.01)
        [event] = plane.events
        assert (event.key, event.reason) == (KEY, "ProxyRestarted")

    play(lambda: Plane(path), story)


def test_the_ports_of_a_killed_process_are_never_those_of_another_program(path: Path) -> None:
    """Its workers have them for a moment longer: all of them are stopped here, so that the moment lasts."""
    errors = set[str]()

    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        master, worker = plane.master, plane.worker

        class Errors(LocationPart):
            def on_serving_change(self) -> None:
                errors.add(plane.dataplane.error(KEY))

        plane.signals.connect((plane.signals.listener, Errors()))
        os.kill(worker, signal.SIGSTOP)
        os.kill(master, signal.SIGKILL)
        await until(lambda: not plane.dataplane._master.running)
        await asyncio.sleep(0.1)  # so long the worker has the ports
        os.kill(worker, signal.SIGCONT)
        await until(lambda: plane.events)
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body != "a":
                await asyncio.sleep(0.01)

    play(lambda: Plane(path), story)
    assert errors <= {""}


def test_a_backend_that_is_as_wanted_is_read_again_only_when_it_changes(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        await plane.address(SERVICE, replica)
        await until(lambda: not plane.dataplane._proxy._unfinished)

    play(lambda: Plane(path), story)


def test_a_lost_socket_is_opened_again(path: Path) -> None:
    async def story(plane: Plane) -> None:
        a, b = await WebReplica("a").start(), await WebReplica("b").start()
        address = await plane.address(SERVICE, a)
        master = plane.master
        (plane.directory / MASTER_SOCKET).unlink()
        plane.dataplane.update(KEY, (b.endpoint,))
        await until(lambda: "does not answer" in plane.dataplane.error(KEY))
        await until(lambda: not plane.dataplane.error(KEY))
        assert ((await get(address)).body, plane.master) == ("b", master)

    play(lambda: Plane(path), story)


def test_haproxy_releases_memory_and_its_maps_stay(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, await WebReplica("a").start())
        before = await plane.command(f"show map ./{PORTS}")
        assert address.rpartition(":")[2] in before
        assert [(await plane.command(each)).strip() for each in RELEASE_MEMORY] == ["", ""]
        assert await plane.command(f"show map ./{PORTS}") == before
        assert (await get(address)).body == "a"

    play(lambda: Plane(path), story)


def test_a_port_that_another_program_took_is_reported_and_taken_back(path: Path) -> None:
    addresses: list[str] = []

    async def remember(plane: Plane) -> None:
        addresses.append(await plane.address())
        await plane.address(msgspec.structs.replace(SERVICE, key=OTHER))
        plane.dataplane.withdraw(KEY)
        await until(lambda: not plane.dataplane.address(KEY))

    play(lambda: Plane(path), remember)
    [address] = addresses
    # From version 3.4 on it has the port until then, since it reloads for no workload that leaves.
    end(path)

    async def story(plane: Plane) -> None:
        other = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), await WebReplica("b").start())
        with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
            plane.dataplane.publish(SERVICE)
            await until(lambda: plane.dataplane.error(KEY))
            assert address in plane.dataplane.error(KEY)
            assert (await get(other)).body == "b"
        assert await plane.address() == address
        assert plane.dataplane.error(KEY) == ""

    play(lambda: Plane(path), story)


def test_no_request_is_lost_by_reloads_and_rollouts(path: Path) -> None:
    wrong: list[Answer] = []

    async def ask(address: str, done: asyncio.Event, keep: bool) -> int:
        browser, count = await Browser.to(address), 0
        while not done.is_set():
            browser.send()
            answer = await browser.answer()
            count += 1
            if answer.status != 200:
                wrong.append(answer)
            if not keep or answer.headers.get("connection") == "close" or not answer.status:
                browser.close()
                browser = await Browser.to(address)
        browser.close()
        return count

    async def story(plane: Plane) -> None:
        replicas = [await WebReplica(f"a-{number}").start() for number in range(6)]
        address, done = await plane.address(SERVICE, replicas[0]), asyncio.Event()
        clients = [asyncio.create_task(ask(address, done, keep)) for keep in (True, True, False)]
        for number in range(1, 6):
            await plane.ready(*replicas[number - 1 : number + 1])
            await plane.ready(replicas[number])
            if number % 2:
                await plane.reload()
        done.set()
        assert min([await each for each in clients]) > 0
        assert wrong == []
        assert all(each.heads for each in replicas)

    play(lambda: Plane(path), story)


def test_without_workloads_nothing_runs(path: Path) -> None:
    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, await WebReplica("a").start())
        plane.dataplane.withdraw(KEY)
        await until(lambda: not plane.master)
        assert (await get(address)).status == 0
        assert await plane.address() == address

    play(lambda: Plane(path), story)


@pytest.mark.parametrize("neighbour", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_request_to_a_suspended_workload_is_answered_with_its_suspension(path: Path, neighbour: bool) -> None:
    tcp = msgspec.structs.replace(SERVICE, key=OTHER, protocol="tcp")

    async def suspended(address: str) -> None:
        page = await answer_of(address, 503)
        assert page.body.startswith("503: the workload is suspended (request ")
        assert "retry-after" not in page.headers
        page = await get(address, "Accept: application/json")
        assert json.loads(page.body)["message"] == "the workload is suspended"

    async def story(plane: Plane) -> None:
        if neighbour:
            await plane.address(msgspec.structs.replace(SERVICE, key=SOCKETS))
        address = await plane.address(SERVICE, replica := await WebReplica("a").start())
        other = await plane.address(tcp)
        plane.dataplane.suspend(SERVICE)
        plane.dataplane.suspend(tcp)
        await suspended(address)
        await answer_of(other, 0)
        assert plane.dataplane.address(KEY) == ""
        assert plane.dataplane.error(KEY) == ""
        # The one that follows a crash of HAProxy answers, too.
        end(path)
        await suspended(address)
        assert await plane.address(SERVICE, replica) == address
        assert (await get(address)).body == "a"
        plane.dataplane.suspend(SERVICE)
        await suspended(address)
        plane.dataplane.forget(KEY)
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body.startswith("503: the workload is suspended"):
                await asyncio.sleep(0.01)

    play(lambda: Plane(path), story)


def test_another_daemon_answers_for_a_suspended_workload(path: Path) -> None:
    addresses: list[str] = []

    async def first(plane: Plane) -> None:
        addresses.append(await plane.address(SERVICE))
        plane.dataplane.suspend(SERVICE)
        await answer_of(addresses[0], 503)

    async def second(plane: Plane) -> None:
        plane.dataplane.suspend(SERVICE)
        await plane.dataplane.synchronize(KEY)
        await plane.address(msgspec.structs.replace(SERVICE, key=OTHER))
        assert (await get(addresses[0])).body.startswith("503: the workload is suspended")

    play(lambda: Plane(path), first)
    play(lambda: Plane(path), second)


def test_a_workload_that_comes_back_is_served_while_its_former_requests_go_on(path: Path) -> None:
    async def story(plane: Plane) -> None:
        old, new = await WebReplica("old").start(), await WebReplica("new").start()
        service = msgspec.structs.replace(SERVICE, timeout_seconds=60)
        address = await plane.address(service, old)
        old.gate.clear()
        open_one = asyncio.create_task(get(address))
        await until(lambda: old.open)
        plane.dataplane.withdraw(KEY)
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionRefusedError):
                while True:
                    (await Browser.to(address)).close()
                    await asyncio.sleep(0.01)
        await plane.ready(new)
        assert await plane.serve(service) == address
        assert (await get(address)).body == "new"
        old.gate.set()
        assert (await open_one).body == "old"

    play(lambda: Plane(path), story)


def test_grpc_reaches_a_replica_through_http_2(path: Path) -> None:
    service = msgspec.structs.replace(SERVICE, protocol="grpc")

    async def story(plane: Plane) -> None:
        with health_server(Status.SERVING) as port:
            address = f"127.0.0.1:{port}"
            plane.dataplane.update(KEY, (Endpoint("a", address, {str(PORT): address}, 1),))
            served = await plane.serve(service)
            async with asyncio.timeout(PATIENCE):
                assert await check_health(int(served.rpartition(":")[2])) == "SERVING"

    play(lambda: Plane(path), story)


def test_a_web_socket_outlasts_reloads_and_its_replica_leaving_the_pool(path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        accept = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%s\r\n\r\n" % accept
        )
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def story(plane: Plane) -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        plane.dataplane.update(KEY, (Endpoint("socket", address, {str(PORT): address}, 1),))
        client = await Client.to(await plane.serve(SERVICE))
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        client.send(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n\r\n" % key)
        while await client.answer():
            pass
        await plane.reload()
        await plane.ready(await WebReplica("next").start())
        await until(lambda: plane.dataplane._proxy._facts.former_workers)
        client.send(b"still here\n")
        assert await client.answer() == "still here"
        client.close()
        server.close()

    play(lambda: Plane(path), story)


@pytest.mark.parametrize("reloads", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_open_connections_count_after_reloads_also_of_a_workload_that_is_withdrawn(path: Path, reloads: int) -> None:
    async def story(plane: Plane) -> None:
        program = f"127.0.0.1:{await Program('socket').start()}"
        plane.dataplane.update(SOCKETS, (Endpoint("socket", program, {str(PORT): program}, 1),))
        served, tally = await plane.serve(msgspec.structs.replace(SERVICE, key=SOCKETS)), Tally("WebSocket")
        sockets = [Socket(served) for _ in range(3)]
        for number in range(reloads):
            for client in sockets[: number + 1]:
                await client.ask(tally)
            await plane.reload()
        for client in sockets:
            await client.ask(tally)
        assert (await counted(plane)).active == 3
        assert plane.dataplane.open_requests(SOCKETS, "socket") == 3
        before = (await counted(plane)).arrived
        await get(served)
        assert (await counted(plane)).arrived == before + 1
        plane.dataplane.withdraw(SOCKETS)
        await until(lambda: not plane.dataplane.address(SOCKETS))
        await plane.reload()
        assert plane.dataplane.open_requests(SOCKETS, "socket") == 3
        for client in sockets:
            await client.ask(tally)
            client.close()
        await plane.reload()
        await until(lambda: not plane.dataplane.open_requests(SOCKETS, "socket"))
        assert tally.lost == []

    play(lambda: Plane(path), story)


def test_counts_are_unknown_while_a_former_worker_cannot_be_read(path: Path) -> None:
    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        former = FormerWorkers(plane.dataplane._master)
        for _ in range(2):
            # There is no such worker.
            await former.read(["1"])
            assert not former.known
        await former.read([f"{plane.worker}"])
        assert former.known
        assert "shop:web" in former.names()
        for _ in range(2):
            await former.read([f"{plane.worker}", "1"])
            assert not former.known
        await former.read([])
        assert (former.known, former.names()) == (True, set())

    play(lambda: Plane(path), story)


async def counted(plane: Plane) -> Traffic:
    """The counts of the workload, as soon as they are known."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(EngineError):
                if SOCKETS in (found := await plane.dataplane.traffic()):
                    return found[SOCKETS]
            await asyncio.sleep(0.01)


async def pause_process(pid: int) -> None:
    """Stop ``pid``, and wait until it uses the processor no more."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T")


def test_a_process_that_answers_requests_does_not_hang_whatever_its_socket_does(path: Path) -> None:
    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        progress, master, worker = WorkerProgress(plane.dataplane._master), plane.master, plane.worker
        plane.stop()
        await pause_process(master)
        try:
            assert not any([await progress.has_stopped(now) for now in (0.0, SILENT_SECONDS, LONG_SECONDS - 1)])
            # A master alone changes nothing any more.
            assert await progress.has_stopped(LONG_SECONDS)
            progress.note_answer()
            await pause_process(worker)
            assert not await progress.has_stopped(100.0)
            assert await progress.has_stopped(100.0 + SILENT_SECONDS)
        finally:
            for each in (worker, master):
                os.kill(each, signal.SIGCONT)

    play(lambda: Plane(path), story)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "master"])
def test_a_process_that_hangs_is_replaced(path: Path, victim: str) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address = await plane.address(SERVICE, replica)
        os.kill(plane.worker if victim == "worker" else plane.master, signal.SIGSTOP)
        other = await WebReplica("b").start()
        await plane.ready(other)
        await until(lambda: plane.events)
        assert [each.reason for each in plane.events] == ["ProxyRestarted"]
        assert (await get(address)).body == "b"

    play(lambda: Plane(path), story)
