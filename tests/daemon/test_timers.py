"""One protocol of timers, whichever way time passes: on a real event loop, or by a test's push."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.clock import Timers
from reconciler.daemon.timers import LoopTimers
from tests.support.buggy import forget_logged
from tests.support.clock import FakeClock


class Passage(msgspec.Struct):
    """Timers, and a way to let seconds pass for them."""

    timers: Timers
    let_pass: Callable[[float], Awaitable[None]]

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5.0):
            while not reached():
                await self.let_pass(0.005)


def scheduled() -> Passage:
    return Passage(LoopTimers(), asyncio.sleep)


def faked() -> Passage:
    clock = FakeClock()
    return Passage(clock, clock.advance)


both = pytest.mark.parametrize("form", [scheduled, faked])


@both
def test_a_call_is_made_again_and_again_until_it_is_cancelled(form: Callable[[], Passage]) -> None:
    async def scenario() -> None:
        time, calls, later = form(), [], []
        time.timers.every("poll", 0.01, 0.005, lambda: calls.append(1))
        await time.let_pass(0.03)
        assert calls == [], "nothing is called before the start"
        time.timers.start()
        await time.until(lambda: len(calls) >= 3)
        time.timers.cancel("poll")
        time.timers.cancel("poll")
        seen = len(calls)
        time.timers.after("later", 0.05, lambda: later.append(1))
        await time.until(lambda: bool(later))
        assert len(calls) == seen
        time.timers.stop()

    asyncio.run(scenario())


@both
def test_a_later_call_is_made_once_and_on_the_loop_itself(form: Callable[[], Passage]) -> None:
    async def scenario() -> None:
        time, loops, beats = form(), [], []
        time.timers.start()
        time.timers.after("once", 0.01, lambda: loops.append(asyncio.get_running_loop()))
        time.timers.every("beat", 0.01, 0.0, lambda: beats.append(1))
        await time.until(lambda: len(beats) >= 5)
        assert loops == [asyncio.get_running_loop()]
        time.timers.stop()

    asyncio.run(scenario())


@both
def test_a_name_stands_for_its_newest_call_alone(form: Callable[[], Passage]) -> None:
    async def scenario() -> None:
        time, calls = form(), []
        time.timers.start()
        time.timers.after("retry", 0.01, lambda: calls.append("old"))
        time.timers.after("retry", 0.02, lambda: calls.append("new"))
        await time.until(lambda: bool(calls))
        time.timers.every("retry", 30.0, 0.0, lambda: calls.append("poll"))
        time.timers.after("retry", 0.01, lambda: calls.append("newest"))
        await time.until(lambda: len(calls) == 2)
        assert calls == ["new", "newest"]
        time.timers.stop()

    asyncio.run(scenario())


@both
def test_a_call_that_sets_its_own_timer_anew_goes_on(form: Callable[[], Passage]) -> None:
    async def scenario() -> None:
        time, calls = form(), []

        def again() -> None:
            calls.append(1)
            time.timers.after("again", 0.005, again)

        time.timers.start()
        time.timers.after("again", 0.005, again)
        await time.until(lambda: len(calls) >= 4)
        time.timers.stop()

    asyncio.run(scenario())


@both
def test_nothing_is_called_after_the_stop(form: Callable[[], Passage]) -> None:
    async def scenario() -> None:
        time, calls = form(), []
        time.timers.start()
        time.timers.every("poll", 0.01, 0.0, lambda: calls.append(1))
        await time.until(lambda: bool(calls))
        time.timers.stop()
        time.timers.stop()
        seen = len(calls)
        await time.let_pass(0.05)
        assert len(calls) == seen

    asyncio.run(scenario())


def test_a_call_that_fails_is_logged_and_called_again() -> None:
    async def scenario() -> None:
        time, calls = scheduled(), []

        def fail() -> None:
            calls.append(1)
            raise ValueError("a text that may be a secret")

        time.timers.start()
        time.timers.every("poll", 0.01, 0.0, fail)
        await time.until(lambda: len(calls) >= 2)
        time.timers.stop()

    forget_logged()
    with capture_logs() as logged:
        asyncio.run(scenario())
    assert [(each["part"], each["error"]) for each in logged] == [("timer poll", "ValueError")]
    assert "secret" not in str(logged[0]["error"])


def test_calls_that_were_missed_become_one() -> None:
    async def scenario() -> None:
        passage, calls = scheduled(), []
        passage.timers.start()
        passage.timers.every("poll", 0.05, 0.0, lambda: calls.append(1))
        time.sleep(0.5)
        await passage.until(lambda: bool(calls))
        await asyncio.sleep(0)
        assert len(calls) == 1
        passage.timers.stop()

    asyncio.run(scenario())


def test_no_call_goes_by_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    async def scenario() -> None:
        passage, calls = scheduled(), []
        passage.timers.start()
        passage.timers.every("poll", 0.02, 0.0, lambda: calls.append("poll"))
        passage.timers.after("retry", 3600.0, lambda: calls.append("retry"))
        for jump in (54 * 365 * 86400.0, -400 * 86400.0):
            ahead[0] = jump
            seen = len(calls)
            await passage.until(lambda: len(calls) > seen)  # noqa: B023 - waited for at once
        assert set(calls) == {"poll"}
        passage.timers.stop()

    asyncio.run(scenario())
