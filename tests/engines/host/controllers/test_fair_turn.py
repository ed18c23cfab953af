"""Keepers that become ready together do not hold up the event loop, and a file of the pool is written in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.engines.host.controllers.fair_turn import FairTurn
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Replica
from reconciler.errors import EngineError
from reconciler.model.key import Key

WEB = Key.parse("workload/shop/web")


async def _go(pace: FairTurn, name: str, went: list[str]) -> None:
    await pace.acquire()
    went.append(name)


async def test_others_get_a_turn_between_any_two() -> None:
    assert await _together(5) == ["0", "1", "2", "3", "4"]


async def _together(count: int) -> list[str]:
    """The names of those who went on, together where they did so in one turn of the loop."""
    pace = FairTurn()
    went: list[str] = []
    tasks = [asyncio.create_task(_go(pace, f"{number}", went)) for number in range(count)]
    while not all(task.done() for task in tasks):
        went.append("loop")
        await asyncio.sleep(0)
    turns = "".join("." if each == "loop" else each for each in went).split(".")
    return [turn for turn in turns if turn]


async def test_a_single_caller_goes_on_at_once() -> None:
    await _alone()


async def _alone() -> None:
    pace = FairTurn()
    for _ in range(2):
        asking = pace.acquire()
        with pytest.raises(StopIteration):
            asking.send(None)
        await asyncio.sleep(0)


async def test_a_cancelled_turn_delays_no_other() -> None:
    assert await _without_two() == ["0", "3"]


async def _without_two() -> list[str]:
    pace = FairTurn()
    went: list[str] = []
    tasks = [asyncio.create_task(_go(pace, f"{number}", went)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
    return went


def test_a_pool_that_could_not_be_written_is_written_at_the_next_occasion(tmp_path: Path) -> None:
    pool = Endpoints(tmp_path / "endpoints")
    changes: list[tuple[Key, list[str]]] = []
    pool.listen(lambda key, ready: changes.append((key, [each.name for each in ready])))
    web = Replica("web-x", WEB, 1, "", 0.0, (), ports={80: 20001}, ready_since=1.0)
    (tmp_path / "endpoints").write_text("in the way")
    with pytest.raises(EngineError):
        pool.publish(WEB, [web])
    assert changes == [(WEB, ["web-x"])]
    (tmp_path / "endpoints").unlink()
    pool.publish(WEB, [web])
    assert b'"web-x"' in (tmp_path / "endpoints" / "shop" / "web.json").read_bytes()
    assert len(changes) == 1
