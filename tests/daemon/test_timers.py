"""Timers on a real event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconciler.daemon.timers import SchedulerTimers


async def until(reached: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.005)


def test_a_call_is_made_again_and_again_until_it_is_cancelled() -> None:
    async def scenario() -> None:
        timers, calls, later = SchedulerTimers(), [], []
        timers.every("poll", 0.01, 0.005, lambda: calls.append(1))
        assert calls == [], "nothing is called before the start"
        timers.start()
        await until(lambda: len(calls) >= 3)
        timers.cancel("poll")
        timers.cancel("poll")
        seen = len(calls)
        timers.after("later", 0.05, lambda: later.append(1))
        await until(lambda: bool(later))
        assert len(calls) == seen
        timers.stop()

    asyncio.run(scenario())


def test_a_later_call_is_made_once_and_on_the_loop_itself() -> None:
    async def scenario() -> None:
        timers, loops, beats = SchedulerTimers(), [], []
        timers.start()
        timers.after("once", 0.01, lambda: loops.append(asyncio.get_running_loop()))
        timers.every("beat", 0.01, 0.0, lambda: beats.append(1))
        await until(lambda: len(beats) >= 5)
        assert loops == [asyncio.get_running_loop()]
        timers.stop()

    asyncio.run(scenario())


def test_a_name_stands_for_its_newest_call_alone() -> None:
    async def scenario() -> None:
        timers, calls = SchedulerTimers(), []
        timers.start()
        timers.after("retry", 0.01, lambda: calls.append("old"))
        timers.after("retry", 0.02, lambda: calls.append("new"))
        await until(lambda: bool(calls))
        timers.every("retry", 30.0, 0.0, lambda: calls.append("poll"))
        timers.after("retry", 0.01, lambda: calls.append("newest"))
        await until(lambda: len(calls) == 2)
        assert calls == ["new", "newest"]
        timers.stop()

    asyncio.run(scenario())


def test_a_call_that_sets_its_own_timer_anew_goes_on() -> None:
    async def scenario() -> None:
        timers, calls = SchedulerTimers(), []

        def again() -> None:
            calls.append(1)
            timers.after("again", 0.005, again)

        timers.start()
        timers.after("again", 0.005, again)
        await until(lambda: len(calls) >= 4)
        timers.stop()

    asyncio.run(scenario())


def test_nothing_is_called_after_the_stop() -> None:
    async def scenario() -> None:
        timers, calls = SchedulerTimers(), []
        timers.start()
        timers.every("poll", 0.01, 0.0, lambda: calls.append(1))
        await until(lambda: bool(calls))
        timers.stop()
        timers.stop()
        seen = len(calls)
        await asyncio.sleep(0.05)
        assert len(calls) == seen

    asyncio.run(scenario())


def test_a_call_that_fails_is_called_again() -> None:
    async def scenario() -> None:
        timers, calls = SchedulerTimers(), []

        def fail() -> None:
            calls.append(1)
            raise ValueError("a bug")

        timers.start()
        timers.every("poll", 0.01, 0.0, fail)
        await until(lambda: len(calls) >= 2)
        timers.stop()

    asyncio.run(scenario())
