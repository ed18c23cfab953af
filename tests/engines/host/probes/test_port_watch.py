"""Programs that do not listen on their port are named, where no readiness probe asks for it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import pytest

from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.port_watch import CHECK_SECONDS, GRACE_SECONDS, PortWatch
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Command, Probe, Target
from tests.support.clock import FakeClock
from tests.support.processes import free_ports

WEB = Key.parse("workload/shop/web")


class OwnProcess:
    """A runtime whose containers are this process; ``searches`` counts how often it is looked for."""

    def __init__(self) -> None:
        self.searches = 0
        self.pids = frozenset({os.getpid()})

    async def exec(self, container_id: ContainerId, argv: tuple[str, ...], timeout: float) -> ExecResult:
        """Never called."""
        raise NotImplementedError

    def find_processes(self, _container_id: ContainerId) -> frozenset[int]:
        """This process."""
        self.searches += 1
        return self.pids


class Changes(LocationPart):
    """Counts the changes of what is served."""

    count = 0

    def on_serving_change(self) -> None:
        """One more."""
        self.count += 1


class WatchHarness:
    """A watch over one replica with the port 8080, for which this process listens on ``port`` if it does."""

    def __init__(self) -> None:
        self.clock, self.runtime, self.changes = FakeClock(), OwnProcess(), Changes()
        [self.port] = free_ports(1)
        self.replicas: list[Replica] = []
        self.run()
        signals = LocationSignals()
        signals.connect([self.changes])
        self.watch = PortWatch(self.runtime, lambda: self.replicas, self.clock, signals)

    def run(self, **more: object) -> None:
        """Let the replica run in place of the one before."""
        spec = msgspec.structs.replace(ContainerSpec("main", ports=(8080,)), **more)
        container = ReplicaContainer("main", Phase.RUNNING, started=self.clock.monotonic(), ready=True, wanted=spec)
        self.replicas = [
            Replica(
                "web-a", WEB, version=1, config_hash="", created=0.0, containers=(container,), ports={8080: self.port}
            )
        ]

    async def until_checked(self, seconds: float) -> None:
        """Let time pass, and let the threads end that look meanwhile."""
        for _ in range(int(seconds / CHECK_SECONDS)):
            await self.clock.advance(CHECK_SECONDS)
            for _ in range(5):
                # The only thread is free again once it has looked.
                await asyncio.to_thread(int)
                await asyncio.sleep(0)


def played(story: Callable[[WatchHarness], Awaitable[None]]) -> None:
    async def whole() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        harness = WatchHarness()
        [work] = harness.watch.work()
        running = asyncio.create_task(work)
        await asyncio.sleep(0)
        try:
            await story(harness)
        finally:
            running.cancel()

    asyncio.run(whole())


def test_a_program_that_listens_on_another_port_is_named() -> None:
    async def story(harness: WatchHarness) -> None:
        await harness.until_checked(GRACE_SECONDS - CHECK_SECONDS)
        assert (harness.watch.error(WEB), harness.runtime.searches) == ("", 0), "it has time to listen"
        await harness.until_checked(2 * CHECK_SECONDS)
        assert harness.watch.error(WEB).startswith(f"nothing listens on {harness.port} (PORT); the program listens on ")
        assert harness.watch.error(Key.parse("workload/shop/other")) == ""
        assert harness.changes.count == 1
        with closing(socket.create_server(("127.0.0.1", harness.port))):
            await harness.until_checked(CHECK_SECONDS)
            assert (harness.watch.error(WEB), harness.changes.count) == ("", 2)
            searches = harness.runtime.searches
            await harness.until_checked(4 * CHECK_SECONDS)
            assert harness.runtime.searches == searches, "one that listens is not looked at again"

    played(story)


def test_a_replica_that_is_replaced_is_forgotten_at_once_and_a_restart_is_checked_again() -> None:
    async def story(harness: WatchHarness) -> None:
        await harness.until_checked(GRACE_SECONDS + CHECK_SECONDS)
        assert harness.watch.error(WEB) != ""
        harness.replicas = [msgspec.structs.replace(harness.replicas[0], ending=1.0)]
        assert harness.watch.error(WEB) == ""
        harness.run()
        await harness.until_checked(GRACE_SECONDS + CHECK_SECONDS)
        assert harness.watch.error(WEB) != ""

    played(story)


@pytest.mark.parametrize(
    "more",
    [
        {"ports": ()},
        {"readiness": Probe(tcp_socket=Target(8080))},
    ],
)
def test_what_has_no_port_or_a_probe_of_it_is_left_to_the_probe(more: dict[str, object]) -> None:
    async def story(harness: WatchHarness) -> None:
        harness.run(**more)
        await harness.until_checked(GRACE_SECONDS + 2 * CHECK_SECONDS)
        assert (harness.watch.error(WEB), harness.runtime.searches) == ("", 0)

    played(story)


def test_a_probe_by_a_command_leaves_the_port_to_the_watch() -> None:
    async def story(harness: WatchHarness) -> None:
        harness.run(readiness=Probe(exec=Command(("true",))))
        await harness.until_checked(GRACE_SECONDS + CHECK_SECONDS)
        assert "nothing listens" in harness.watch.error(WEB)

    played(story)


def test_a_container_that_cannot_be_inspected_is_taken_for_well() -> None:
    async def story(harness: WatchHarness) -> None:
        harness.runtime.pids = frozenset()
        await harness.until_checked(GRACE_SECONDS + 3 * CHECK_SECONDS)
        assert (harness.watch.error(WEB), harness.runtime.searches) == ("", 1)

    played(story)
