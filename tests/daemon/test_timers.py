"""One protocol of timers, whichever way time passes: on a real event loop, or by a test's push."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from logging.handlers import BufferingHandler
from typing import Self, cast

import apscheduler.schedulers.base
import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.clock import Timers
from reconciler.daemon.timers import SchedulerTimers
from tests.support.buggy import forget_logged
from tests.support.clock import FakeClock


class TimerHarness(msgspec.Struct):
    """Timers, and a way to let seconds pass for them."""

    timers: Timers
    let_pass: Callable[[float], Awaitable[None]]

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                await self.let_pass(0.005)


def scheduled() -> TimerHarness:
    return TimerHarness(SchedulerTimers(), asyncio.sleep)


def faked() -> TimerHarness:
    clock = FakeClock()
    return TimerHarness(clock, clock.advance)


both = pytest.mark.parametrize("form", [scheduled, faked])


@both
async def test_a_call_is_made_again_and_again_until_it_is_cancelled(form: Callable[[], TimerHarness]) -> None:
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


@both
async def test_a_later_call_is_made_once_and_on_the_loop_itself(form: Callable[[], TimerHarness]) -> None:
    time, loops, beats = form(), [], []
    time.timers.start()
    time.timers.after("once", 0.01, lambda: loops.append(asyncio.get_running_loop()))
    time.timers.every("beat", 0.01, 0.0, lambda: beats.append(1))
    await time.until(lambda: len(beats) >= 5)
    assert loops == [asyncio.get_running_loop()]
    time.timers.stop()


@both
async def test_a_name_stands_for_its_newest_call_alone(form: Callable[[], TimerHarness]) -> None:
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


@both
async def test_a_call_that_sets_its_own_timer_anew_goes_on(form: Callable[[], TimerHarness]) -> None:
    time, calls = form(), []

    def again() -> None:
        calls.append(1)
        time.timers.after("again", 0.005, again)

    time.timers.start()
    time.timers.after("again", 0.005, again)
    await time.until(lambda: len(calls) >= 4)
    time.timers.stop()


@both
async def test_nothing_is_called_after_the_stop(form: Callable[[], TimerHarness]) -> None:
    time, calls = form(), []
    time.timers.start()
    time.timers.every("poll", 0.01, 0.0, lambda: calls.append(1))
    await time.until(lambda: bool(calls))
    time.timers.stop()
    time.timers.stop()
    seen = len(calls)
    await time.let_pass(0.05)
    assert len(calls) == seen


async def test_a_call_that_fails_is_logged_and_called_again() -> None:
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
        await scenario()
    assert [(each["part"], each["error"]) for each in logged] == [("timer poll", "ValueError")]
    assert "secret" not in str(logged[0]["error"])


async def test_calls_that_were_missed_become_one(clocks: Clocks) -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.every("poll", 60.0, 0.0, lambda: calls.append(1))
    await harness.let_pass(0.02)
    clocks.monotonic = clocks.wall = 630.0
    await harness.until(lambda: bool(calls))
    await asyncio.sleep(0)
    assert len(calls) == 1
    harness.timers.stop()


@pytest.mark.parametrize("seconds", [0.0, 1e17])
async def test_any_interval_can_be_set(seconds: float) -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.every("poll", seconds, seconds / 10, lambda: calls.append("poll"))
    harness.timers.after("once", seconds, lambda: calls.append("once"))
    harness.timers.after("end", 0.05, lambda: calls.append("end"))
    await harness.until(lambda: "end" in calls)
    assert set(calls) == ({"end"} if seconds else {"poll", "once", "end"})
    harness.timers.stop()


async def test_a_timer_that_is_set_after_the_stop_is_never_called() -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.after("status", 30.0, lambda: calls.append(1))
    harness.timers.stop()
    for _ in range(3):
        harness.timers.after("status", 0.01, lambda: calls.append(1))
        await harness.let_pass(0.02)
    harness.timers.stop()
    assert calls == []


async def test_a_call_cancels_another_one_that_is_due_at_the_same_time() -> None:
    harness, calls = scheduled(), []

    def call(name: str, other: str) -> None:
        calls.append(name)
        harness.timers.cancel(other)

    harness.timers.start()
    harness.timers.after("one", 0.01, partial(call, "one", "two"))
    harness.timers.after("two", 0.01, partial(call, "two", "one"))
    time.sleep(0.05)
    await harness.let_pass(0.05)
    assert calls == ["one"]
    harness.timers.stop()


async def test_a_call_that_sets_its_own_timer_at_once_is_called_again() -> None:
    harness, calls = scheduled(), []

    def call_again() -> None:
        calls.append(1)
        harness.timers.after("again", 0.0, call_again)

    harness.timers.start()
    harness.timers.after("again", 0.0, call_again)
    await harness.until(lambda: len(calls) >= 50)
    harness.timers.stop()


class Clocks:
    """The clocks of this process, each with a leap in seconds. APScheduler reads the wall clock as a date."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        wall, monotonic = time.time, time.monotonic
        self.wall = self.monotonic = 0.0
        clocks = self

        class Date(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                utc = cls.fromtimestamp(time.time(), UTC)
                return cast(Self, utc if tz is None else tz.fromutc(utc.replace(tzinfo=tz)))

        patch.setattr(time, "time", lambda: wall() + clocks.wall)
        patch.setattr(time, "monotonic", lambda: monotonic() + clocks.monotonic)
        patch.setattr(apscheduler.schedulers.base, "datetime", Date)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize("years", [54, -10])
async def test_a_wall_clock_that_is_set_costs_nothing_and_moves_no_call(clocks: Clocks, years: int) -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.every("poll", 0.02, 0.0, lambda: calls.append("poll"))
    harness.timers.every("drift", 3600.0, 0.0, lambda: calls.append("drift"))
    harness.timers.after("retry", 3600.0, lambda: calls.append("retry"))
    await harness.until(lambda: bool(calls))
    cpu, before = time.process_time(), peak_memory()
    clocks.wall = years * 365 * 86400.0
    harness.timers.after("soon", 0.02, lambda: calls.append("soon"))
    await harness.until(lambda: "soon" in calls and len(calls) > 10)
    assert set(calls) == {"poll", "soon"}
    assert time.process_time() - cpu < 1.0
    assert peak_memory() - before < 20_000
    harness.timers.stop()


async def test_a_suspended_machine_with_a_monotonic_clock_that_stops_delays_all_calls(clocks: Clocks) -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.every("poll", 30.0, 0.0, lambda: calls.append("poll"))
    harness.timers.after("once", 0.05, lambda: calls.append("once"))
    clocks.wall = 8 * 3600.0
    await harness.until(lambda: bool(calls))
    assert calls == ["once"]
    harness.timers.stop()


async def test_a_suspended_machine_with_a_monotonic_clock_that_runs_makes_each_call_once(clocks: Clocks) -> None:
    harness, calls = scheduled(), []
    harness.timers.start()
    harness.timers.every("poll", 60.0, 0.1, lambda: calls.append("poll"))
    harness.timers.every("drift", 300.0, 0.0, lambda: calls.append("drift"))
    harness.timers.after("retry", 3600.0, lambda: calls.append("retry"))
    harness.timers.after("beyond", 1e8, lambda: calls.append("beyond"))
    await harness.let_pass(0.02)
    cpu, before = time.process_time(), peak_memory()
    clocks.monotonic = clocks.wall = 10 * 86400.0
    await harness.until(lambda: len(calls) >= 3)
    await harness.let_pass(0.1)
    assert sorted(calls) == ["drift", "poll", "retry"]
    assert time.process_time() - cpu < 1.0
    assert peak_memory() - before < 20_000
    harness.timers.stop()


async def test_nothing_of_the_scheduler_is_logged() -> None:
    harness, calls = scheduled(), []
    warnings = BufferingHandler(1000)
    warnings.setLevel(logging.WARNING)
    logging.getLogger().addHandler(warnings)
    harness.timers.start()
    harness.timers.every("poll", 0.001, 0.0, lambda: calls.append(1))
    await harness.until(lambda: len(calls) > 3)
    time.sleep(0.2)
    await harness.until(lambda: len(calls) > 9)
    harness.timers.stop()
    await harness.let_pass(0.01)
    logging.getLogger().removeHandler(warnings)
    assert warnings.buffer == []


def peak_memory() -> int:
    """The most memory that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
