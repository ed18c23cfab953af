"""A daemon that dies anywhere: at each request to Podman, and at each piece of work on the disk."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from reconciler.engines.host.disk.ownership import IdRange
from tests.engines.host.runtimes.podman.kit import KEY, PodmanHarness, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.support.clock import FakeClock
from tests.support.threads import InlineExecutor, StepBudget, live

SIDE = place(container="side")
MOST = 200


async def past(root: Path) -> Libpod:
    """A service with what a former daemon left: a replica, one without its network, and half a start."""
    service = Libpod()
    async with opened(root, root / "socket", service.transport(), keep=True) as former:
        for name in ("r", "lost", "old"):
            await former.runtime.start(launch(at=place(name)))
    service.named("-lost.").state = "exited"
    service._create({}, service.named("-old-main").body | {"name": "half"})
    return service


async def work(host: PodmanHarness) -> None:
    """All that a daemon does with containers."""
    await host.runtime.open(host.ended.append)
    await host.runtime.start(launch(at=SIDE))
    await host.runtime.prune({(KEY, "r"), (KEY, "old")})
    await host.runtime.start(launch(at=place("new"), ids=IdRange(200_000)))
    await host.runtime.signal(SIDE, signal.SIGKILL)
    await host.over(SIDE)
    await host.runtime.start(launch(at=SIDE, version=2))
    await host.runtime.remove(KEY, "old")
    await host.runtime.remove(KEY, "new")


async def heir_puts_right(root: Path, service: Libpod, what: str) -> None:
    """The next daemon has just the containers that it wants, the untouched one is the same, and nothing is left."""
    former = service.named("-r-main").id
    async with opened(root, root / "socket", service.transport()) as heir:
        await heir.runtime.prune({(KEY, "r")})
        found = {each.place: each for each in await heir.runtime.list()}
        assert found[place()].alive, what
        if SIDE not in found or not found[SIDE].alive:
            await heir.runtime.start(launch(at=SIDE, version=2))
        names = sorted(box.body["name"].partition(".")[0][17:] for box in service.boxes.values())
        assert names == ["r", "r-main", "r-side"], what
        assert all(box.state == "running" for box in service.boxes.values()), what
        assert service.named("-r-main").id == former, what
        members = [box for box in service.boxes.values() if box.body["netns"]["nsmode"] == "container"]
        assert all(box.updates for box in members), what
        folders = {path.name for path in (root / "podman").glob("*/*/*")}
        assert folders == {"r"}, what
    assert (service.boxes, service.networks) == ({}, {}), what


async def die_at(root: Path, steps: int, *, last_arrives: bool) -> bool:
    """A daemon dies after so many steps, and the next one follows; whether it did all its work before."""
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    service, life = await past(root), StepBudget(steps, last_arrives=last_arrives)
    doomed = PodmanHarness(root, root / "socket", service.dying(life), FakeClock())
    died = await live(life, lambda: asyncio.ensure_future(work(doomed)))
    await heir_puts_right(root, service, f"death after {steps} steps")
    return not died


def deaths(short: range) -> Iterable[object]:
    """A few of the steps, and all of them in the long form."""
    return [pytest.param(short, id="some"), pytest.param(range(MOST), id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("last_arrives", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("steps", deaths(range(3, MOST, 9)))
async def test_a_daemon_that_dies_anywhere_leaves_what_the_next_one_puts_right(
    tmp_path: Path, steps: range, last_arrives: bool
) -> None:
    async def story() -> None:
        for number in steps:
            if await die_at(tmp_path, number, last_arrives=last_arrives):
                assert number > 60
                return
        raise AssertionError("it never did all its work")

    await story()
