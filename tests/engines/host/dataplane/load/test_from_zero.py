"""A thousand requests that wait for the first replica: all are answered, the next one is refused, and nothing leaks."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.settings import HoldSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Plane, end, get, play
from tests.engines.host.dataplane.kit import PORT
from tests.engines.host.dataplane.load.program import Program
from tests.support.programs import tool


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The directory of the location, whose HAProxy ends after the test."""
    tool("haproxy", "haproxy")
    yield tmp_path
    end(tmp_path)


async def release(plane: Plane, count: int) -> tuple[list[int], float]:
    """The statuses of ``count`` requests that wait for a replica, and the seconds from its readiness to the last."""
    address = await plane.serve(SERVICE)
    asked = [asyncio.create_task(get(address)) for _ in range(count)]
    await plane.waiting(count)
    assert (await get(address)).status == 503
    replica = f"127.0.0.1:{await Program('a').start()}"
    began = time.monotonic()
    plane.dataplane.update(KEY, (Endpoint("a", replica, {str(PORT): replica}, 1),))
    answers = await asyncio.gather(*asked)
    return [each.status for each in answers], time.monotonic() - began


def test_all_requests_that_wait_are_answered_and_the_next_one_is_refused(path: Path) -> None:
    async def story(plane: Plane) -> None:
        statuses, _ = await release(plane, 100)
        assert statuses == [200] * 100

    play(lambda: Plane(path, HoldSettings(requests=100)), story)


@pytest.mark.slow
def test_a_thousand_requests_that_wait_are_answered_soon_after_readiness(path: Path) -> None:
    async def story(plane: Plane) -> None:
        statuses, seconds = await release(plane, 1000)
        print(f"{seconds:.3f} s from readiness to the last of 1,000 answers")
        assert statuses == [200] * 1000

    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    play(lambda: Plane(path, HoldSettings(requests=1000)), story)
