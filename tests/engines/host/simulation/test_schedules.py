"""For any order of events the invariants are true at every step, and all comes to rest as wanted."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.host.simulation.behaviour import BEHAVIOURS, SOUND
from tests.engines.host.simulation.schedule import QUIET, Schedule, begin, play
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.pace import in_time

DAY = 86_400

KINDS = (("standard", False), ("serverless", False), ("stateful", False), ("stateful", True))

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


def days_of(days: int, kind: str, parallel: bool) -> Schedule:
    """A workload with something happening about every quarter of an hour, the same each time."""
    rng = random.Random(f"{kind} {parallel}")
    verbs = [f"push {name}" for name in BEHAVIOURS] + [f"push {name}" for name in sorted(SOUND)] * 3
    verbs += [f"scale {number}" for number in range(1, 9)] * 2 + ["touch", "suspend", "resume", "resume", "delete"]
    verbs += [f"{verb} {number}" for verb in ("crash", "unready", "ready", "ready", "dead") for number in range(8)]
    verbs += ["restart 0", "restart 120"] * 4
    events = [f"{rng.choice((5, 100, 600, 1000, 2900))}.015625 {rng.choice(verbs)}" for _ in range(days * DAY // 900)]
    return Schedule("", kind, 5, rng.randint(1, 3), rng.randint(0, 2), 10, parallel, events=tuple(events))


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(schedules())
def test_any_schedule_comes_to_rest_as_wanted(schedule: Schedule) -> None:
    play(schedule)


@pytest.mark.parametrize("case", cases("host/schedules.yaml"))
def test_a_schedule_that_once_went_wrong(case: dict[str, Any]) -> None:
    play(msgspec.convert(case, Schedule))


@pytest.mark.parametrize("case", cases("host/courses.yaml"))
def test_the_course_of_things_to_the_second(case: dict[str, Any]) -> None:
    course = case.pop("course")
    seconds = case.pop("seconds", QUIET)
    simulation = begin(msgspec.convert(case, Schedule))
    begun, before = simulation.now, len(simulation.carried_out)
    simulation.run(seconds)
    assert [f"{at - begun:g} {act}" for at, act in simulation.carried_out[before:]] == course


@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "parallel"), KINDS)
def test_days_of_everything(kind: str, parallel: bool, days: int) -> None:
    """Some trouble every quarter of an hour; for seven days ten seconds are for all four and the controller's own."""
    simulation, _ = in_time(lambda: play(days_of(days, kind, parallel)), 5.0)
    assert simulation.now > days * DAY
    assert len(simulation.carried_out) > (2000 if days == 7 else 100)
