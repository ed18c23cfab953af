"""A thousand requests that wait for the first replica: all are answered, the next one is refused, and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from reconciler.engines.host.dataplane.haproxy.proxy import FLOOD
from reconciler.settings import HoldSettings
from tests.bench.host_sandbox import used
from tests.engines.host.dataplane import test_builtin as builtin
from tests.engines.host.dataplane.haproxy import kit as haproxy
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, end, get
from tests.engines.host.dataplane.kit import PORT, until
from tests.engines.host.dataplane.load.program import Program
from tests.support.programs import tool

Plane = haproxy.Plane | builtin.Plane
LIMIT = 0.3
"""Seconds from readiness to the last answer, without the time of the service."""


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The directory of the location, whose HAProxy ends after the test; each request takes a few files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 16_384), limits[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    end(tmp_path)


def play(kind: str, path: Path, hold: HoldSettings, story: Callable[[Plane], object]) -> None:
    """Play ``story`` with a data plane of the ``kind``."""
    if kind == "haproxy":
        tool("haproxy", "haproxy")
        haproxy.play(lambda: haproxy.Plane(path, hold), story)  # type: ignore[arg-type]
    else:
        builtin.play(lambda: builtin.Plane(path, hold), story)  # type: ignore[arg-type]


async def served(plane: Plane) -> str:
    """The address of a workload without replicas."""
    plane.dataplane.publish(SERVICE)
    await until(lambda: plane.dataplane.address(KEY))
    return plane.dataplane.address(KEY)


async def waiting(plane: Plane, count: int) -> None:
    """Return when so many requests wait."""
    async with asyncio.timeout(60):
        while (found := (await plane.dataplane.traffic())[KEY].waiting) != count:
            assert found <= count
            await asyncio.sleep(0.02)


async def release(plane: Plane, count: int) -> tuple[list[int], float]:
    """The statuses of ``count`` requests that wait for a replica, and the seconds from its readiness to the last."""
    address = await served(plane)
    asked = [asyncio.create_task(get(address)) for _ in range(count)]
    await waiting(plane, count)
    assert (await get(address)).status == 503
    replica = f"127.0.0.1:{await Program('a').start()}"
    began = time.monotonic()
    plane.dataplane.update(KEY, (Endpoint("a", replica, {str(PORT): replica}, 1),))
    answers = await asyncio.gather(*asked)
    return [each.status for each in answers], time.monotonic() - began


async def give_up(plane: Plane, count: int) -> None:
    """Send ``count`` requests to a workload whose replica never becomes ready."""
    address = await served(plane)
    answers = await asyncio.gather(*(get(address) for _ in range(count)))
    assert {each.status for each in answers} == {503}
    assert all(each.headers["retry-after"] == "1" for each in answers)
    await waiting(plane, 0)
    # Clients leave more in this process than its data plane does.
    gc.collect()


def resident(path: Path) -> list[float]:
    """The megabytes of this process, which is daemon and clients, and of HAProxy's worker."""
    found = find_master(path / "haproxy")
    children = Path(f"/proc/{found}/task/{found}/children").read_text().split() if found is not None else []
    return [used(pid).resident for pid in (haproxy.os.getpid(), *map(int, children))]


async def pool_bytes(plane: Plane) -> int:
    """The bytes of all objects that HAProxy has; 0 without it."""
    if isinstance(plane, builtin.Plane):
        return 0
    text = await plane.dataplane._master.ask("@1 show pools")
    return int(text.rpartition(" allocated, ")[2].split()[0])


@pytest.mark.parametrize("kind", ["haproxy", "builtin"])
def test_all_requests_that_wait_are_answered_and_the_next_one_is_refused(path: Path, kind: str) -> None:
    async def story(plane: Plane) -> None:
        statuses, _ = await release(plane, 60)
        assert statuses == [200] * 60

    play(kind, path, HoldSettings(requests=60), story)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["haproxy", "builtin"])
def test_a_thousand_requests_that_wait_are_answered_soon_after_readiness(path: Path, kind: str) -> None:
    async def story(plane: Plane) -> None:
        statuses, seconds = await release(plane, 1000)
        print(f"{kind}: {1000 * seconds:.0f} ms from readiness to the last of 1,000 answers")
        assert statuses == [200] * 1000
        # Client, daemon and replica share a core of a machine that may be busy: `make bench` has the figure.
        assert seconds < 5 * LIMIT

    play(kind, path, HoldSettings(requests=1000), story)


async def released(plane: Plane, path: Path) -> list[float]:
    """The megabytes of ``resident`` once HAProxy has returned the memory of a flood that is over."""
    if isinstance(plane, haproxy.Plane):
        proxy = plane.dataplane._proxy
        await until(lambda: proxy._floods._most < FLOOD)
        await plane.dataplane.synchronize(KEY)
    return resident(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["haproxy", "builtin"])
def test_ten_thousand_requests_without_a_replica_leave_nothing_in_memory(path: Path, kind: str) -> None:
    async def story(plane: Plane) -> None:
        await served(plane)
        # The first floods leave tables of connections, and pools and a heap that are as large as HAProxy needs them.
        # What is left after each differs by a megabyte: a page stays as long as anything in it is in use.
        sizes = [resident(path)]
        pools = []
        for _ in range(15):
            await give_up(plane, 1000)
            sizes.append(await released(plane, path))
            pools.append(await pool_bytes(plane))
        print(kind, *([round(each, 1) for each in row] for row in sizes), pools[4::5])
        first = map(max, zip(*sizes[1:6], strict=True))
        last = map(median, zip(*sizes[11:], strict=True))
        assert all(after <= 1.05 * before for before, after in zip(first, last, strict=True))
        assert pools[-1] <= 1.05 * max(pools[:5])

    # Longer than the time between two comparisons.
    play(kind, path, HoldSettings(requests=1000, seconds=4), story)
