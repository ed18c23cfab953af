"""A real daemon and real programs under load: rollouts, scaling, reloads, daemons that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from tests.engines.host.dataplane.haproxy.kit import newest_worker
from tests.engines.host.dataplane.load import program
from tests.engines.host.dataplane.load.test_changes import lost
from tests.engines.host.dataplane.load.traffic import FORMS, Tally, under_load
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.programs import tool
from tests.support.sandbox import DaemonProcess

RATE = float(os.environ.get("LOAD_RATE", "500"))
pytestmark = pytest.mark.slow


def manifest(name: str, protocol: str = "http", **more: object) -> str:
    """A workload that answers every form of requests."""
    return served(
        name,
        replicas=int(str(more.pop("replicas", 1))),
        command=sys.executable,
        args=[program.__file__, name],
        ports=[{"number": 8080, "protocol": protocol}],
        env={key: str(value) for key, value in more.items()},
        securityOptions={"runAsUser": 0},  # the interpreter of the tests may be where no other user gets to
    ).replace('"image": "none"', '"image": "none", "cpu": "1", "memory": "128Mi"')


def silent(name: str, **more: object) -> str:
    """A workload that is served, and does nothing."""
    return served(name, replicas=1, command="sleep", args=["1000000"], readinessProbe=None, **more)


class DaemonHarness:
    """The sandbox with its daemon, in an event loop whose clients must not wait."""

    def __init__(self, sandbox: HostSandbox) -> None:
        self.sandbox = sandbox
        self._daemons: list[tuple[DaemonProcess, object]] = []

    def start(self) -> None:
        """Start a daemon."""
        context = self.sandbox.daemon(fresh=True)
        self._daemons.append((context.__enter__(), context))

    def kill(self) -> None:
        """Kill the daemon as a power cut does."""
        daemon, context = self._daemons.pop()
        daemon.kill()
        context.__exit__(None, None, None)  # type: ignore[attr-defined]

    async def until(self, true: Callable[[], object], seconds: float = 90.0) -> None:
        """Return when it is so."""
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(true):
                await asyncio.sleep(0.1)

    async def commit(self, files: dict[str, str | None]) -> None:
        """Commit, and return when it is applied."""
        commit = await asyncio.to_thread(self.sandbox.repo.commit, files)
        await self.until(lambda: self.sandbox.applied(commit))

    async def roll(self, number: int, replicas: int = 1) -> None:
        """Replace all replicas of the workloads by new ones; return when those serve alone."""
        before = {each for name in ("web", "rpc") for each in self.sandbox.replicas(name)}
        web, rpc = manifest("web", replicas=replicas, N=number), manifest("rpc", "grpc", N=number)
        await self.commit({"shop/web.yaml": web, "shop/rpc.yaml": rpc})
        await self.until(lambda: not before & {*self.sandbox.replicas("web"), *self.sandbox.replicas("rpc")})
        await self.until(lambda: self.sandbox.healthy() and self.sandbox.healthy("workload/shop/rpc@here"))

    async def scale(self, count: int, number: int) -> None:
        """Run ``count`` replicas of the first workload."""
        await self.commit({"shop/web.yaml": manifest("web", replicas=count, N=number)})
        await self.until(lambda: len(self.sandbox.replicas("web")) == len(self.sandbox.ready("web")) == count)

    def addresses(self) -> dict[str, str]:
        """The address for each form of requests."""
        web, rpc = self.sandbox.address(), self.sandbox.address("workload/shop/rpc@here")
        return {form: rpc if form == "gRPC" else web for form in FORMS}

    def worker(self) -> int | None:
        """The number of HAProxy's newest worker; None in the instant in which the master begins again."""
        found = find_master(self.sandbox.state / "host" / "here" / "dataplane" / "haproxy")
        return None if found is None else newest_worker(found)

    async def present_worker(self) -> int:
        """The same, once there is one."""
        await self.until(self.worker)
        found = self.worker()
        assert found is not None
        return found

    async def play(self, story: Callable[[], object]) -> list[Tally]:
        """What came of the requests during ``story``."""
        self.start()
        try:
            served_both = lambda: self.sandbox.healthy() and self.sandbox.healthy("workload/shop/rpc@here")  # noqa: E731
            await self.until(served_both)
            await self.until(lambda: all(self.addresses().values()))
            return await under_load(self.addresses(), RATE, story)  # type: ignore[arg-type]
        finally:
            self.kill()


@pytest.fixture(name="harness")
def sandbox_under_load(tmp_path: Path) -> Iterator[DaemonHarness]:
    """Two workloads that answer every form of requests."""
    tool("haproxy", "haproxy")
    files = {"shop/web.yaml": manifest("web"), "shop/rpc.yaml": manifest("rpc", "grpc")}
    here = {"engine": "host", "runtime": "process", "dataplane": "haproxy"}
    host = {"terminationScale": 0.02}
    with host_sandbox(tmp_path, files, locations={"here": here}, host=host, prune={"percent": 100}) as sandbox:
        yield DaemonHarness(sandbox)


def check(tallies: list[Tally]) -> None:
    """Nothing is lost, of any form."""
    print(*tallies, lost(tallies), sep="\n")
    assert lost(tallies) == {}
    assert min(each.answered for each in tallies) > RATE / 2


async def test_rollouts_and_scaling_lose_nothing(harness: DaemonHarness) -> None:
    async def story() -> None:
        for number in range(20):
            await harness.roll(number)
        await harness.scale(5, 19)
        await harness.scale(1, 19)

    check(await harness.play(story))


async def test_many_workloads_that_come_and_go_lose_nothing(harness: DaemonHarness) -> None:
    async def story() -> None:
        began, names = time.monotonic(), [f"more-{number}" for number in range(50)]
        changes = [*(silent(name) for name in names), *[None] * 50]
        for number, text in enumerate(changes):
            # So that almost each of them costs a reload.
            await asyncio.sleep(began + number * 60 / len(changes) - time.monotonic())
            await harness.commit({f"shop/{names[number % 50]}.yaml": text})

    check(await harness.play(story))


async def test_reloads_lose_nothing(harness: DaemonHarness) -> None:
    async def story() -> None:
        seen = set()
        for number in range(15):
            seen.add(before := await harness.present_worker())
            options = {"autoscaling": {"metric": "disabled", "minScale": 1, "maxScale": 1}, "debug": number % 2 == 0}
            await harness.commit({"shop/other.yaml": silent("other", defaultOptions=options)})
            await harness.until(lambda before=before: harness.worker() not in (None, before))
        assert len(seen) == 15

    check(await harness.play(story))


async def test_a_daemon_that_is_killed_loses_nothing(harness: DaemonHarness) -> None:
    async def story() -> None:
        for number in range(3):
            await asyncio.to_thread(harness.kill)
            await asyncio.sleep(1)
            await asyncio.to_thread(harness.start)
            # Once more in the middle of a rollout.
            rolling = asyncio.create_task(harness.roll(number))
            before = {*harness.sandbox.replicas("web")}
            await harness.until(lambda before=before: {*harness.sandbox.replicas("web")} - before)
            await asyncio.to_thread(harness.kill)
            await asyncio.to_thread(harness.start)
            await rolling

    check(await harness.play(story))


async def test_a_worker_that_is_killed_loses_only_what_is_open_and_is_back_within_a_second(
    harness: DaemonHarness,
) -> None:
    async def story() -> None:
        await asyncio.sleep(2)
        os.kill(await harness.present_worker(), 9)
        killed.append(time.monotonic())
        await asyncio.sleep(5)

    killed: list[float] = []
    tallies = await harness.play(story)
    print(*tallies, lost(tallies), sep="\n")
    times = sorted(float(each.split()[0]) - killed[0] for tally in tallies for each in tally.lost)
    print(json.dumps([tally.lost[-1:] for tally in tallies]), times[-1:])
    assert all(-0.1 <= at <= 1 for at in times), times
