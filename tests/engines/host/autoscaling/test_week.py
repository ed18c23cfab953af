"""A week of traffic: the replicas are those that were worked out by hand, and some things hold at every step."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from math import floor

import pytest
import yaml

from tests.engines.host.autoscaling.week import DAY, Changes, SimulatedWorkload, Week, entries, times
from tests.support.cases import CASES

CASE = yaml.load((CASES / "autoscaling" / "week.yaml").read_bytes(), yaml.CSafeLoader)
WINDOW = 300
TOLERANCE = 1.1


class Invariants:
    """What holds at every decision, whatever the traffic."""

    def __init__(self, week: Week) -> None:
        self._rates = {simulated.name: simulated.rates[:] for simulated in week.simulated_workloads}
        self.decisions = 0

    def check(self, simulated: SimulatedWorkload, before: int, now: float) -> None:
        """Bounds; never to zero with waiting requests; a standard workload not within 5 minutes of need."""
        self.decisions += 1
        least, most = simulated.bounds
        count = len(simulated.replicas)
        assert least <= count <= most, (simulated.name, now)
        assert count > 0 or not before or not simulated.waiting, (simulated.name, now)
        if count < before and simulated.every == 15 and not simulated.answers:
            for at in range(floor(now) - WINDOW + 15, floor(now)):
                assert self._minute(simulated.name, at) <= simulated.target * count * TOLERANCE, (
                    simulated.name,
                    now,
                    at,
                )

    def _minute(self, name: str, now: int) -> float:
        """The mean rate of the minute before the collection before ``now``."""
        end = now - now % 20
        changes = [*self._rates[name], (float("inf"), 0.0)]
        parts = (
            rate * max(0, min(end, until) - max(end - 60, since)) for (since, rate), (until, _) in pairwise(changes)
        )
        return sum(parts) / 60


def within(changes: Changes, begin: int, end: int) -> Changes:
    """The changes after ``begin``."""
    return [each for each in changes if begin < each[0] <= end]


def readable(changes: Changes) -> list[str]:
    """``day 2 15:00:02 30``."""
    return [f"day {at // DAY} {at % DAY // 3600:02}:{at // 60 % 60:02}:{at % 60:02} {value}" for at, value in changes]


def play(begin: int, warm: int, end: int) -> int:
    """Compare what happens from ``warm`` to ``end``; returns the number of decisions."""
    week = Week(CASE, begin)
    invariants = Invariants(week)
    asyncio.run(week.run(end, invariants.check))
    for simulated in week.simulated_workloads:
        case = CASE[simulated.name]
        expected = [(at, int(value)) for at, value in entries(case["replicas"])]
        assert readable(within(simulated.changes, warm, end)) == readable(within(expected, warm, end)), simulated.name
        events = within(entries(case["events"]), warm, end)
        assert readable(within(week.events[simulated.name], warm, end)) == readable(events), simulated.name
    return invariants.decisions


@pytest.mark.parametrize(
    ("begin", "warm", "end"),
    [
        ("Mon 05:40:00", "Mon 05:59:00", "Mon 06:02:00"),
        ("Tue 07:40:00", "Tue 07:59:00", "Tue 08:08:00"),
        ("Wed 14:40:00", "Wed 14:59:30", "Wed 15:08:00"),
        ("Thu 10:40:00", "Thu 10:59:30", "Thu 11:12:00"),
        ("Fri 10:10:00", "Fri 10:29:30", "Fri 10:37:00"),
        ("Sun 11:40:00", "Sun 11:59:50", "Sun 12:06:00"),
    ],
    ids=["morning", "latency", "flood", "outage", "burst", "from zero"],
)
def test_replicas_follow_the_traffic_of_an_hour_in_the_week(begin: str, warm: str, end: str) -> None:
    assert play(*times([begin, warm, end])) > 100


@pytest.mark.slow
def test_replicas_follow_the_traffic_of_a_week() -> None:
    assert play(0, -1, 7 * DAY) > 600_000
