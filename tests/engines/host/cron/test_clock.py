"""Cron workloads when the clock is set, the machine is suspended, or no daemon runs: nothing twice, no miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.host.cron.kit import MINUTE, CronHarness, play

HOUR = 60 * MINUTE
DAY = 24 * HOUR
MIDNIGHT = 29_455_200
"""The minute 2026-01-02T00:00:00Z."""


def minutes(names: list[str]) -> list[int]:
    """The minutes since the epoch that executions are named after."""
    return [int(name.rpartition("-")[2]) for name in names]


async def run_for(host: CronHarness, seconds: float) -> None:
    """Let time pass, and each execution end before the next one is due."""
    for _ in range(int(seconds // 15)):
        await host.rest(15.0)
        host.end()


def test_the_deadline_counts_while_the_machine_is_suspended(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(schedule="*/5 * * * *", activeDeadlineSeconds=240)
        await host.rest(6 * MINUTE)
        host.time.suspend(3 * MINUTE)
        await host.rest(1.0)
        [one] = await host.executions()
        assert (one.status, one.conditions[0]["reason"]) == ("Removed", "DeadlineExceeded")
        assert (one.start_time, one.completion_time) == ("2026-01-01T00:05:00Z", "2026-01-01T00:09:00Z")

    play(tmp_path, story)


def test_a_suspended_machine_starts_the_newest_time_at_once_and_counts_the_others(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        host.time.suspend(8 * HOUR)
        await host.rest(1.0)
        assert len(host.starts()) == 1
        [event] = host.events
        assert event.reason == "ExecutionsMissed"
        assert event.message.startswith("479 scheduled executions since 2026-01-01T00:01:00Z were missed;")

    play(tmp_path, story)


def test_a_time_that_is_missed_by_a_short_sleep_is_late(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.rest(50.0)
        host.time.suspend(40.0)
        await host.rest(1.0)
        assert len(host.starts()) == 1
        assert [each.message for each in host.events] == [
            f"{host.starts()[0]} starts 30 s late: it was due at 2026-01-01T00:01:00Z"
        ]

    play(tmp_path, story)


def test_a_clock_that_is_set_a_day_forward_is_one_start_and_one_event(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(schedule="*/10 * * * *")
        await host.rest(5 * MINUTE)
        host.time.jump(DAY)
        await host.rest(1.0)
        assert len(host.starts()) == 1
        assert sorted(host.reasons()) == ["ClockJumped", "ExecutionsMissed"]
        host.end()
        host.time.jump(-20 * MINUTE)
        ran = host.starts()
        await host.rest(10 * MINUTE)
        host.end()
        await host.rest(25 * MINUTE)
        # 23:50 was missed and runs now; midnight has run already.
        assert [each - MIDNIGHT for each in minutes(host.starts()[len(ran) :])] == [-10, 10]
        assert host.reasons().count("ExecutionsMissed") == 1

    play(tmp_path, story)


@pytest.mark.parametrize("ahead", [pytest.param(2 * HOUR, marks=pytest.mark.slow), 400 * DAY, 54 * 365 * DAY])
def test_a_clock_that_is_ahead_for_a_moment_stops_no_schedule_and_runs_nothing_twice(
    tmp_path: Path, ahead: float
) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(historyLimit=1)
        await run_for(host, 3 * MINUTE)
        host.time.jump(ahead)
        await run_for(host, 45.0)
        host.time.jump(-ahead)
        await run_for(host, 5 * MINUTE)
        begin = MIDNIGHT - 24 * 60
        assert sorted(minutes(host.starts())) == [*range(begin + 1, begin + 9), begin + 3 + int(ahead // 60)]
        assert host.reasons().count("ClockJumped") == 2
        if ahead == 2 * HOUR:
            await run_for(host, 2 * HOUR)
            assert len(set(host.starts())) == len(host.starts()) == 8 + 121 - 1

    play(tmp_path, story)


@pytest.mark.parametrize("back", [20 * MINUTE, 400 * DAY])
def test_a_clock_that_is_behind_for_a_moment_runs_nothing_twice(tmp_path: Path, back: float) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(historyLimit=1)
        await run_for(host, 30 * MINUTE)
        host.time.jump(-back)
        await run_for(host, 2 * MINUTE)
        host.time.jump(back)
        await run_for(host, 5 * MINUTE)
        assert len(set(host.starts())) == len(host.starts())
        [missed] = [each.message for each in host.events if each.reason == "ExecutionsMissed"]
        assert missed.startswith("1 scheduled executions since 2026-01-01T00:31:00Z were missed; ")
        assert minutes(host.starts())[-5:] == list(range(MIDNIGHT - 24 * 60 + 33, MIDNIGHT - 24 * 60 + 38))

    play(tmp_path, story)


def test_a_clock_that_is_set_back_while_no_daemon_runs_starts_nothing_twice(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(schedule="*/10 * * * *")
        await host.rest(10 * MINUTE)
        host.end()
        await host.rest()
        await host.engine.close()
        host.time.jump(-20 * MINUTE)
        await host.restart()
        await host.rest(20 * MINUTE)
        assert len(host.starts()) == 1
        await host.rest(10 * MINUTE)
        assert (len(host.starts()), await host.states()) == (2, ["Success", "Active"])
        assert set(host.reasons()) <= {"ClockJumped"}

    play(tmp_path, story)


def test_a_month_of_downtime_under_replace_is_one_start_and_one_event(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(concurrencyPolicy="Replace")
        await host.engine.close()
        host.time.suspend(30 * DAY)
        await host.restart()
        await host.rest()
        assert (len(host.starts()), host.reasons()) == (1, ["ExecutionsMissed"])
        assert host.events[0].message.startswith("more than 1000 scheduled executions since 2026-01-01T00:01:00Z")
        await host.rest(MINUTE)
        assert len(host.starts()) == 2

    play(tmp_path, story)


def test_a_schedule_that_is_suspended_meanwhile_misses_nothing(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.schedule(2, suspend=True)
        host.time.suspend(8 * HOUR)
        await host.rest(1.0)
        await host.schedule(3)
        assert (host.starts(), host.events) == ([], [])
        await host.rest(MINUTE)
        assert len(host.starts()) == 1

    play(tmp_path, story)
