"""A sandbox with an ingress, of processes and of containers, under load: whatever happens to it, nothing is lost.

25 WebSockets send a line each second, and three more forms of requests share the rest of the rate: HTTP/1.1 with
keep-alive and with a connection each, and HTTP/2 over TLS at the ingress.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from tests.engines.host.dataplane.load import program
from tests.engines.host.dataplane.load.images import BASE, PROGRAM, base_image
from tests.engines.host.dataplane.load.test_changes import lost
from tests.engines.host.dataplane.load.test_daemon import RATE, DaemonHarness, silent
from tests.engines.host.dataplane.load.test_neighbours import port_of, process
from tests.engines.host.dataplane.load.test_renewal import context
from tests.engines.host.dataplane.load.traffic import H1, H2, Socket, Tally, under_load
from tests.support.certificates import issue
from tests.support.host_sandbox import host_sandbox, served
from tests.support.podman import podman_service
from tests.support.processes import free_ports
from tests.support.programs import tool

pytestmark = pytest.mark.slow
NAME = "shop.example"
DOMAIN = f"kind: domain\nname: {NAME}\nspec: {{dnsMode: cname, workloadLink: //gvc/shop/workload/web}}\n"
SOCKETS = 25
REUSED, CLOSED, SECURE, SOCKET = "HTTP/1.1, keep-alive", "HTTP/1.1, a connection each", "HTTP/2 over TLS", "WebSocket"
IN_FLIGHT = 1.5
"""Seconds in which a loss is noticed; a WebSocket asks once a second."""
FLOOD = 300
"""Requests a second at a workload without a ready replica."""
Story = Callable[[], Awaitable[None]]


class LoadHarness(DaemonHarness):
    """The sandbox with its clients, by the runtime of its location."""

    https = 0
    in_containers = False

    def program(self, name: str, *, replicas: int = 1, cpu: str = "1", **more: Any) -> str:
        """A workload that answers every form of requests, from inside and outside."""
        command, file = ("python3", PROGRAM) if self.in_containers else (sys.executable, program.__file__)
        everyone = {"external": {"inboundAllowCIDR": ["0.0.0.0/0"]}}
        text = served(
            name,
            replicas=replicas,
            command=command,
            args=[file, name],
            firewallConfig=everyone,
            ports=[{"number": 8080, "protocol": "http"}],
            securityOptions={"runAsUser": 0},
            **more,
        )
        return self.with_image(text, cpu)

    def serverless(self, name: str) -> str:
        """The same, with no replica while nothing asks it."""
        text = json.loads(self.program(name, replicas=0))
        scaling = {"metric": "concurrency", "target": 10, "minScale": 0, "maxScale": 2, "scaleToZeroDelay": 30}
        text["spec"] |= {"type": "serverless", "defaultOptions": {"autoscaling": scaling, "capacityAI": False}}
        return json.dumps(text)

    def with_image(self, text: str, cpu: str = "1") -> str:
        """The manifest with the image of this sandbox."""
        image = BASE if self.in_containers else "none"
        return text.replace('"image": "none"', f'"image": "{image}", "cpu": "{cpu}", "memory": "128Mi"')

    async def roll_web(self, number: int) -> None:
        """Replace all replicas of ``web``; return when the new ones serve alone."""
        before = {*self.sandbox.replicas("web")}
        await self.commit({"shop/web.yaml": self.program("web", env={"N": str(number)})})
        await self.until(lambda: not before & {*self.sandbox.replicas("web")} and self.sandbox.healthy())

    async def scale_web(self, count: int, **more: Any) -> None:
        """Run ``count`` replicas of ``web``."""
        await self.commit({"shop/web.yaml": self.program("web", replicas=count, **more)})
        await self.until(lambda: len(self.sandbox.replicas("web")) == len(self.sandbox.ready("web")) == count)

    async def reload(self, number: int) -> None:
        """Let HAProxy have another worker: a workload comes, or goes."""
        before = await self.present_worker()
        text = self.with_image(silent("more")) if number % 2 == 0 else None
        await self.commit({"shop/more.yaml": text})
        await self.until(lambda: self.worker() not in (None, before))

    @property
    def proxy(self) -> Path:
        """The directory of HAProxy."""
        return self.sandbox.state / "host/here/dataplane/haproxy"

    def events(self, reason: str) -> list[str]:
        """The lines of the events of this reason."""
        return [line for line in self.sandbox.run("events").stdout.splitlines() if f" {reason} " in line]

    async def play_story(self, story: Story) -> list[Tally]:
        """What came of the requests during ``story``."""
        self.start()
        try:
            await self.until(lambda: self.sandbox.healthy() and bool(self.sandbox.address()))
            secure = context("h2")
            await self.until_secure(secure)
            at, outside = self.sandbox.address(), f"127.0.0.1:{self.https}"
            forms = {
                REUSED: lambda address: H1(address, keep=True),
                CLOSED: lambda address: H1(address, keep=False),
                SECURE: lambda address: H2(address, host=NAME, context=secure),
            }
            rest = {REUSED: at, CLOSED: at, SECURE: outside}
            tallies: list[Tally] = []

            async def others() -> None:
                tallies.extend(await under_load(rest, RATE - SOCKETS, story, forms=forms))

            tallies += await under_load({SOCKET: at}, SOCKETS, others, SOCKETS, {SOCKET: Socket})
            return tallies
        finally:
            self.kill()

    async def until_secure(self, secure: ssl.SSLContext) -> None:
        """Return when the ingress serves ``web`` with TLS."""
        async with asyncio.timeout(60):
            tally = Tally(SECURE)
            while not tally.answered:
                client = H2(f"127.0.0.1:{self.https}", host=NAME, context=secure)
                await client.ask(tally)
                client.close()
                await asyncio.sleep(0.1)


@pytest.fixture(name="harness", params=["process", "podman"])
def load_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoadHarness]:
    """A sandbox whose workload ``web`` is served with TLS too."""
    tool("haproxy", "haproxy")
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / "shop.pem").write_bytes(issue(NAME).pem)
    http, https = free_ports(2)
    ingress = {"addresses": ["127.0.0.1"], "httpPort": http, "httpsPort": https, "certificates": str(folder)}
    here = {"engine": "host", "dataplane": "haproxy", "runtime": request.param, "ingress": ingress}
    settings: dict[str, Any] = {
        "host": {"terminationScale": 0.05},
        "prune": {"percent": 100, "count": 100},
        "locations": {"here": here},
    }
    in_containers = request.param == "podman"
    with podman_service() if in_containers else nullcontext() as podman:
        if podman is not None:
            podman.load(base_image())
            settings["podman"] = {"socket": str(podman.socket)}
        with host_sandbox(tmp_path, {"domain.yaml": DOMAIN}, **settings) as sandbox:
            harness = LoadHarness(sandbox)
            harness.https, harness.in_containers = https, in_containers
            sandbox.repo.commit({"shop/web.yaml": harness.program("web")})
            yield harness


def check(tallies: list[Tally]) -> None:
    """Nothing is lost, of any form."""
    print("", *tallies, lost(tallies), sep="\n", flush=True)
    assert lost(tallies) == {}
    assert min(each.answered for each in tallies) > 0


async def test_ten_rollouts_lose_nothing(harness: LoadHarness) -> None:
    async def story() -> None:
        for number in range(10):
            await harness.roll_web(number)

    check(await harness.play_story(story))


async def test_scaling_to_five_and_back_loses_nothing(harness: LoadHarness) -> None:
    async def story() -> None:
        await harness.scale_web(5)
        await harness.scale_web(1)

    check(await harness.play_story(story))


async def test_replicas_that_cannot_keep_up_lose_nothing(harness: LoadHarness) -> None:
    """A replica answers ten requests a second. So all that wait are answered later than a probe waits, and its fail."""

    async def story() -> None:
        slow = {"ALONE": "0.1"}
        await harness.scale_web(1, env=slow)
        await asyncio.sleep(20)
        await harness.scale_web(5, env=slow)
        await harness.scale_web(1, env=slow)

    check(await harness.play_story(story))


async def test_five_kills_of_the_daemon_lose_nothing(harness: LoadHarness) -> None:
    async def story() -> None:
        for number in range(5):
            before = {*harness.sandbox.replicas("web")}
            rolling = asyncio.create_task(harness.roll_web(number))
            await harness.until(lambda before=before: {*harness.sandbox.replicas("web")} - before)
            await asyncio.to_thread(harness.kill)
            await asyncio.sleep(1)
            await asyncio.to_thread(harness.start)
            await rolling

    check(await harness.play_story(story))


async def test_web_sockets_live_over_ten_reloads_and_only_idle_workloads_scale_to_zero(harness: LoadHarness) -> None:
    harness.sandbox.repo.commit({f"shop/{name}.yaml": harness.serverless(name) for name in ("used", "idle")})
    tallies: list[Tally] = []
    woken = 0

    async def wake() -> None:
        """Ask the idle workload whenever it has no replica."""
        nonlocal woken
        tally = Tally("a request that wakes")
        tallies.append(tally)
        client = H1(harness.sandbox.address("workload/shop/idle@here"), keep=False)
        while True:
            await harness.until(lambda: not harness.sandbox.replicas("idle"))
            await client.ask(tally)
            woken += 1

    async def reloads() -> None:
        first = {*harness.sandbox.replicas("used")}
        waking = asyncio.create_task(wake())
        for number in range(10):
            await harness.reload(number)
            await asyncio.sleep(8)
        # Twice the time after which a workload without requests has no replica.
        await asyncio.sleep(60)
        waking.cancel()
        assert {*harness.sandbox.replicas("used")} == first
        assert woken >= 2

    async def story() -> None:
        await harness.until(lambda: harness.sandbox.address("workload/shop/used@here"))
        used = {SOCKET: harness.sandbox.address("workload/shop/used@here")}

        async def after_first() -> None:
            await harness.until(lambda: harness.sandbox.ready("used"))
            await reloads()

        tallies.extend(await under_load(used, 3, after_first, 3, {SOCKET: Socket}))
        await harness.until(lambda: not harness.sandbox.replicas("used"), 120)

    found = await harness.play_story(story)
    check(found + tallies)


@pytest.mark.parametrize("victim", ["worker", "master"])
async def test_a_process_of_haproxy_that_is_killed_loses_only_what_is_in_flight(
    harness: LoadHarness, victim: str
) -> None:
    killed = restarted = 0.0

    async def story() -> None:
        nonlocal killed, restarted
        await asyncio.sleep(2)
        pid = await harness.present_worker()
        master = find_master(harness.proxy)
        assert master is not None
        killed = time.monotonic()
        os.kill(pid if victim == "worker" else master, 9)
        await harness.until(lambda: harness.worker() not in (None, pid))
        restarted = time.monotonic()
        await asyncio.sleep(5)

    tallies = await harness.play_story(story)
    times = sorted(float(text.split()[0]) for tally in tallies for text in tally.lost)
    print("", *tallies, lost(tallies), f"restarted after {restarted - killed:.2f} s", sep="\n", flush=True)
    assert all(killed - 0.1 <= at <= restarted + IN_FLIGHT for at in times), [at - killed for at in times]
    assert min(tally.answered for tally in tallies) > 0


async def test_a_flooded_neighbour_under_two_busy_loops_costs_nothing(harness: LoadHarness) -> None:
    never = {"exec": {"command": ["test", "-d", "/nowhere"]}, "periodSeconds": 1}
    harness.sandbox.repo.commit({"shop/stuck.yaml": harness.program("stuck", readinessProbe=never)})

    async def story() -> None:
        await harness.until(lambda: harness.sandbox.address("workload/shop/stuck@here"))
        port = port_of(harness.sandbox.address("workload/shop/stuck@here"))
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(process("spin"))
            flooding = await stack.enter_async_context(process("flood", port, 30.0, FLOOD))
            output, _ = await flooding.communicate()
            print(output.decode())

    check(await harness.play_story(story))
    assert harness.events("ProxyRestarted") == []
