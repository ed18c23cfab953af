"""A flood of requests that wait costs its neighbours next to nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import pytest

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.settings import HoldSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, OTHER, SERVICE, Plane, end, play
from tests.engines.host.dataplane.kit import PORT
from tests.engines.host.dataplane.load import flood

RATE = 300
MOST = 5.0
"""Milliseconds that the flood may add to the 99th percentile of a neighbour."""


class Latency(NamedTuple):
    """The milliseconds of a neighbour's answers."""

    median: float
    p99: float
    most: float
    failed: int


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The directory of the location, whose HAProxy ends after the test."""
    yield tmp_path
    end(tmp_path)


@asynccontextmanager
async def process(*words: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of ``flood``."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", flood.__name__, *map(str, words), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


async def measure(address: str, seconds: float) -> Latency:
    """Ask a neighbour steadily for some seconds."""
    async with process("probe", port_of(address), seconds) as made:
        text, _ = await made.communicate()
    milliseconds = [float(line) for line in text.split()]
    answers = sorted(each for each in milliseconds if each >= 0)
    return Latency(
        answers[len(answers) // 2], answers[len(answers) * 99 // 100], answers[-1], len(milliseconds) - len(answers)
    )


async def compare(
    plane: Plane, busy: int, seconds: float, rounds: int, *, hold: bool
) -> tuple[list[Latency], list[Latency]]:
    """The latency of a neighbour without the flood and with it, in turn, beside ``busy`` loops.

    The requests of the flood wait for a replica, or for the end of a ``hold``.
    """
    async with process("serve") as server:
        assert server.stdout is not None
        replica = f"127.0.0.1:{int(await server.stdout.readline())}"
        ready = (Endpoint("a", replica, {str(PORT): replica}, 1),)
        plane.dataplane.update(KEY, ready if hold else ())
        until = plane.clock.monotonic() + 3600 if hold else 0.0
        flooded = await plane.serve(msgspec.structs.replace(SERVICE, hold_until=until))
        plane.dataplane.update(OTHER, ready)
        neighbour = await plane.serve(msgspec.structs.replace(SERVICE, key=OTHER))
        loops = [process("spin") for _ in range(busy)]
        for loop in loops:
            await loop.__aenter__()
        quiet, loud = [], []
        try:
            for _ in range(rounds):
                quiet.append(await measure(neighbour, seconds))
                async with process("flood", port_of(flooded), 1000, RATE):
                    # So many that wait and come are not the first ones.
                    await plane.waiting_at_least(RATE)
                    loud.append(await measure(neighbour, seconds))
                await plane.waiting(0)
        finally:
            for loop in loops:
                await loop.__aexit__(None, None, None)
    return quiet, loud


def report(quiet: list[Latency], loud: list[Latency]) -> None:
    for name, found in (("without the flood", quiet), ("with it", loud)):
        print(name, *(f"p50 {each.median:.2f} p99 {each.p99:.2f} max {each.most:.2f} ms;" for each in found))


@pytest.mark.slow
@pytest.mark.parametrize("hold", [False, True])
def test_a_flood_that_waits_costs_a_neighbour_few_milliseconds(path: Path, hold: bool) -> None:
    async def story(plane: Plane) -> None:
        quiet, loud = await compare(plane, busy=2, seconds=10, rounds=6, hold=hold)
        report(quiet, loud)
        assert not any(latency.failed for latency in (*quiet, *loud))
        before, now = ([latency.p99 for latency in found] for found in (quiet, loud))
        # Others use the machine, too: what differs without the flood is not its doing.
        assert median(now) <= median(before) + max(MOST, max(before) - median(before))
        assert "ProxyRestarted" not in {event.reason for event in plane.events}

    play(lambda: Plane(path, HoldSettings(seconds=30)), story)
