"""What goes on at a location besides its workloads."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.logs import tail
from reconciler.engines.host.logs.collector import RETENTION, Collector
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.protocol import EngineEvent
from reconciler.model.key import Key, Kind
from reconciler.tasks import cancel_and_wait
from tests.engines.host.signals import RecordedSignals
from tests.support.clock import FakeClock


class SetClock(FakeClock):
    """A clock that can be set: only the wall clock follows."""

    ahead = 0.0

    def now(self) -> float:
        """What the wall clock shows."""
        return super().now() + self.ahead


async def test_a_clock_jump_is_reported_once_and_counts_for_an_hour(tmp_path: Path) -> None:
    clock = SetClock()
    events: list[EngineEvent] = []
    upkeep = Housekeeping(Collector(tmp_path, "here", clock), clock, "here", RecordedSignals(events))
    for ahead in (0.0, 2.0, 3600.0, 3600.0, -60.0):
        clock.ahead = ahead
        upkeep.check_clock()
    assert [(str(each.key), each.reason) for each in events] == [("location/here", "ClockJumped")] * 2
    assert "+3600 s" in events[0].message
    assert "-3660 s" in events[1].message
    assert upkeep.clock_jumped == events[1].message
    await clock.advance(3600)
    upkeep.check_clock()
    assert (upkeep.clock_jumped, events[2].reason) == ("", "ClockStable")


@pytest.mark.parametrize("jump", [7200.0, -7200.0])
async def test_a_clock_jump_while_no_daemon_runs_is_reported_and_counts_for_an_hour(
    tmp_path: Path, jump: float
) -> None:
    clock, events = FakeClock(), list[EngineEvent]()

    def start() -> Housekeeping:
        clock.started = clock.monotonic()
        made = Housekeeping(Collector(tmp_path, "here", clock), clock, "here", RecordedSignals(events))
        made.check_clock()
        return made

    assert start().clock_jumped == ""
    # The daemon has ended, and the clock has its knowledge from the file.
    await clock.advance(10.0)
    clock.set(jump)
    housekeeping = start()
    assert [each.reason for each in events] == ["ClockJumped"]
    assert f"set by {jump:+.0f} s" in housekeeping.clock_jumped
    await clock.advance(1800.0)
    # One more start knows it, and reports it no second time.
    again = start()
    assert again.clock_jumped == housekeeping.clock_jumped
    assert len(events) == 1
    await clock.advance(1801.0)
    again.check_clock()
    assert (again.clock_jumped, events[1].reason) == ("", "ClockStable")


async def test_logs_that_are_deleted_by_time_are_an_event(tmp_path: Path) -> None:
    clock, events = FakeClock(auto=True), list[EngineEvent]()
    segment = tmp_path / "logs/shop/job/job-1/main/1-1.rlog"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"")
    os.utime(segment, (clock.now() - RETENTION - 1,) * 2)
    upkeep = Housekeeping(Collector(tmp_path / "logs", "here", clock), clock, "here", RecordedSignals(events))
    running = asyncio.create_task(upkeep.run())
    while not events and clock.monotonic() < 5000.0:
        await asyncio.sleep(0.001)
    await cancel_and_wait([running], "the upkeep")
    assert [(str(each.key), each.reason) for each in events] == [("workload/shop/job", "LogsExpired")]
    assert events[0].message == "the logs of removed replicas were deleted, since their time is over: job-1"
    assert not segment.exists()


async def test_output_that_is_dropped_is_reported_at_once_and_then_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST_UNREAD", 2 << 20)
    monkeypatch.setattr(tail, "LEFT_UNREAD", 1 << 10)
    clock, output, events = FakeClock(auto=True), tmp_path / "output", list[EngineEvent]()
    collector = Collector(tmp_path / "logs", "here", clock)
    collector.watch(ContainerId(Key(Kind.WORKLOAD, "shop", "web"), "web-1", "main"), output)
    upkeep = Housekeeping(collector, clock, "here", RecordedSignals(events))
    running = asyncio.create_task(upkeep.run())
    for count in (1, 2, 2, 2):
        output.write_bytes((output.read_bytes() if output.exists() else b"") + b"noise\n" * (1 << 19))
        while len(events) < count and clock.monotonic() < 200.0:
            await asyncio.sleep(0.001)
    await cancel_and_wait([running], "the upkeep")
    assert [(str(each.key), each.reason) for each in events] == [("workload/shop/web", "OutputDropped")] * 2
    assert events[0].message.startswith("web-1: 3 MiB of the output of main are dropped: ")
