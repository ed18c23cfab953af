"""What goes on at a location besides its workloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.protocol import EngineEvent
from tests.support.clock import FakeClock


class SetClock(FakeClock):
    """A clock that can be set: only the wall clock follows."""

    ahead = 0.0

    def now(self) -> float:
        """What the wall clock shows."""
        return super().now() + self.ahead


def test_a_clock_jump_is_reported_once_and_counts_for_an_hour(tmp_path: Path) -> None:
    clock = SetClock()
    events: list[EngineEvent] = []
    upkeep = Housekeeping(Collector(tmp_path, "here", clock), clock, "here", events.append)
    for ahead in (0.0, 2.0, 3600.0, 3600.0, -60.0):
        clock.ahead = ahead
        upkeep.check_clock()
    assert [(str(each.key), each.reason) for each in events] == [("location/here", "ClockJumped")] * 2
    assert "+3600 s" in events[0].message
    assert "-3660 s" in events[1].message
    assert upkeep.clock_jumped == events[1].message
    asyncio.run(clock.advance(3600))
    upkeep.check_clock()
    assert (upkeep.clock_jumped, events[2].reason) == ("", "ClockStable")
