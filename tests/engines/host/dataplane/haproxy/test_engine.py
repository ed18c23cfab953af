"""The host engine with HAProxy: from zero, through a rollout, a suspension and a restart of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.choice import DATAPLANE
from reconciler.engines.host.dataplane.haproxy.master import find_master
from reconciler.engines.host.dataplane.haproxy.plane import HaproxyDataPlane
from reconciler.engines.host.runtimes.protocol import ContainerId
from tests.engines.host.dataplane.haproxy.kit import WebReplica, end, get
from tests.engines.host.dataplane.kit import until
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import Host, play_on
from tests.engines.host.test_from_zero import Fleet, address_of, ask_for, status
from tests.support.programs import tool

STEADY = {"metric": "concurrency", "target": 2, "minScale": 1, "maxScale": 1}

signals: list[tuple[str, bool]] = []
"""Each replica that got a signal, and whether HAProxy still gave it new requests then."""


class Watched(FakeRuntime):
    """Records for each signal what HAProxy does with the replica."""

    plane: HaproxyDataPlane | None = None

    async def signal(self, place: ContainerId, number: int) -> None:
        """As Runtime.signal."""
        if self.plane is not None:
            live = self.plane.live_servers(place.key).get(place.replica)
            signals.append((place.replica, live is not None and live.ready))
        await super().signal(place, number)


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The state directory; its HAProxy ends after the test."""
    tool("haproxy", "haproxy")
    yield tmp_path
    end(tmp_path / "here" / DATAPLANE)


def test_a_workload_is_served_by_haproxy_from_zero_through_a_rollout_and_a_restart(path: Path) -> None:
    async def story(host: Host) -> None:
        plane = host.engine._publisher.dataplane
        assert isinstance(plane, HaproxyDataPlane)
        Watched.plane = plane
        fleet = Fleet(host, WebReplica)
        await ask_for(host)
        address = await address_of(host)
        # A request that waits keeps its replica, however slow this machine is and however fast the clock.
        waiting = asyncio.create_task(get(address))
        await fleet.pass_until(1)
        assert (await waiting).status == 200
        await fleet.pass_until(0)

        waiting = asyncio.create_task(get(address))
        await fleet.pass_until(1)
        [first] = [each.name for each in host.replicas()]
        assert (await waiting).body == first
        signals.clear()
        await ask_for(host, version=2, autoscaling=STEADY)
        await fleet.pass_until(1, version=2)
        assert (first, False) in signals
        assert not any(ready for _, ready in signals)
        [second] = [each.name for each in host.replicas()]
        assert (await get(address)).body == second

        await host.engine.close()
        assert (await get(address)).body == second
        Watched.plane = None
        await host.restart()
        assert (await get(address)).body == second
        assert await address_of(host) == address

        await ask_for(host, version=2, autoscaling=STEADY, suspend=True)
        await fleet.pass_until(0)
        assert (await status(host))["address"] == ""
        await until(lambda: find_master(host.root / DATAPLANE / "haproxy") is None)
        assert (await get(address)).status == 0

    play_on(lambda: Host(path, Watched, "haproxy"), story)
