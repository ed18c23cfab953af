"""The fake clock keeps the promises of the real one, as far as tests lean on them."""

from __future__ import annotations

import asyncio
import threading

from reconciler.clock import Clock, Timers
from tests.engines.host.fake import QuickClock
from tests.support.clock import FakeClock


def test_it_is_a_clock_and_timers() -> None:
    clock: Clock = FakeClock()
    timers: Timers = FakeClock()
    assert clock.now() > clock.monotonic()
    timers.cancel("nobody")


def test_a_suspended_machine_has_longer_sleeps() -> None:
    async def story() -> float:
        clock = FakeClock()
        sleeper = asyncio.ensure_future(clock.sleep(10))
        await clock.advance(4)
        clock.suspend(100)
        await clock.advance(5.9)
        assert not sleeper.done()
        await clock.advance(0.1)
        assert sleeper.done()
        return clock.monotonic()

    assert asyncio.run(story()) == 110.0


def test_sleepers_wake_in_the_order_in_which_they_are_due() -> None:
    async def story() -> list[str]:
        clock, woke = FakeClock(), []

        async def sleeper(name: str, naps: list[float]) -> None:
            for nap in naps:
                await clock.sleep(nap)
                woke.append(f"{name}@{clock.monotonic():g}")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sleeper("a", [3, 3]))
            tasks.create_task(sleeper("b", [2, 2]))
            await clock.advance(1)
            assert woke == []
            await clock.advance(9)
        return woke

    assert asyncio.run(story()) == ["b@2", "a@3", "b@4", "a@6"]


def test_timers_call_again_and_again_until_cancelled() -> None:
    async def story() -> list[float]:
        clock, called = FakeClock(), []
        clock.every("poll", 10, 5, lambda: called.append(clock.monotonic()))
        clock.after("once", 15, lambda: clock.cancel("poll"))
        await clock.advance(5)
        clock.start()
        await clock.advance(100)
        return called

    assert asyncio.run(story()) == [10.0]


def test_a_stopped_clock_calls_no_timer() -> None:
    async def story() -> list[float]:
        clock, called = FakeClock(), []
        clock.start()
        clock.every("poll", 1, 0, lambda: called.append(clock.monotonic()))
        await clock.advance(2)
        clock.stop()
        await clock.advance(10)
        return called

    assert asyncio.run(story()) == [1.0, 2.0]


def test_no_time_passes_while_a_thread_works() -> None:
    async def story() -> float:
        clock, gate = QuickClock(), threading.Event()
        await clock.advance(1)

        async def work() -> float:
            await asyncio.to_thread(gate.wait)
            return clock.monotonic()

        working = asyncio.create_task(work())
        asyncio.get_running_loop().call_later(0.02, gate.set)
        await clock.advance(60)
        return await working

    assert asyncio.run(story()) == 1
