"""Whatever happens, in whatever order: what must hold holds at every step, and all comes to rest as wanted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.casefiles import cases
from tests.engines.host.simulation.behaviour import BEHAVIOURS
from tests.engines.host.simulation.schedule import Schedule, play

SECONDS = st.sampled_from([0, 0, 1, 3, 10, 30, 44, 45, 46, 60, 89, 90, 91, 120, 300, 700, 3000])
NUMBER = st.integers(0, 9)
VERBS = st.one_of(
    st.sampled_from(sorted(BEHAVIOURS)).map("push {}".format),
    st.integers(0, 5).map("scale {}".format),
    st.sampled_from(["suspend", "resume", "resume", "delete", "touch"]),
    st.builds("{} {}".format, st.sampled_from(["crash", "dead", "unready", "unready", "ready"]), NUMBER),
    st.sampled_from([0, 20, 60, 200]).map("restart {}".format),
)
EVENTS = st.lists(st.builds("{} {}".format, SECONDS, VERBS), max_size=25).map(tuple)
ROOM = st.sampled_from([(1, 0), (1, 1), (0, 1), (2, 0), (5, 0), (0, 5), (3, 2)])


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A workload of any shape and up to 25 events."""
    surge, unavailable = draw(ROOM)
    return Schedule(
        type=draw(st.sampled_from(["standard", "serverless", "stateful", "stateful"])),
        replicas=draw(st.integers(0, 4)),
        surge=surge,
        unavailable=unavailable,
        min_ready=draw(st.sampled_from([0, 0, 5, 60])),
        parallel=draw(st.booleans()),
        events=draw(EVENTS),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(schedules())
def test_any_schedule_comes_to_rest_as_wanted(schedule: Schedule) -> None:
    play(schedule)


@pytest.mark.parametrize("case", cases("host/schedules.yaml"))
def test_a_schedule_that_once_went_wrong(case: dict[str, Any]) -> None:
    play(msgspec.convert(case, Schedule))
