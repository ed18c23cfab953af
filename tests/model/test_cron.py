"""Cron expressions: their meaning, minute by minute, and the messages for other texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.cron import Cron, CronError
from tests.support.cases import cases
from tests.support.examples import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BOUNDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
NAMES = {
    "month": ["-", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
MINUTES = st.integers(-1_000_000, 90_000_000)
"""From 1968 to 2141."""


def spelled(kind: str, value: int) -> st.SearchStrategy[str]:
    """``value`` as a number, or as a name in any case where it has one."""
    names = NAMES.get(kind, [])
    named = [spelling(names[value]) for spelling in (str.lower, str.title, str.upper)] if value < len(names) else []
    return st.sampled_from([str(value), *named])


@st.composite
def entries(draw: Any, kind: str) -> tuple[str, set[int]]:
    """One entry of a field's list, as text and as the values that it stands for."""
    low, high = BOUNDS[kind]
    start, end = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.none() | st.integers(1, min(high, 6 if kind == "weekday" else high) - low + 1))
    form = draw(st.sampled_from(["value", "range", "star"]))
    if form == "value":
        return draw(spelled(kind, start)), {start}
    if form == "star":
        start, end, text = low, high, "*"
    else:
        text = f"{draw(spelled(kind, start))}-{draw(spelled(kind, end))}"
    return text + (f"/{step}" if step else ""), set(range(start, end + 1, step or 1))


@st.composite
def fields(draw: Any, kind: str) -> tuple[str, set[int]]:
    """A whole field, a third of the time open."""
    if draw(st.integers(0, 2)) == 0:
        return "*", set(range(BOUNDS[kind][0], BOUNDS[kind][1] + 1))
    listed = draw(st.lists(entries(kind), min_size=1, max_size=3))
    return ",".join(text for text, _ in listed), set().union(*(values for _, values in listed))


Written = dict[str, tuple[str, set[int]]]
SCHEDULES = st.fixed_dictionaries({kind: fields(kind) for kind in BOUNDS})


def text_of(written: Written) -> str:
    """The expression that a user would write."""
    return " ".join(written[kind][0] for kind in BOUNDS)


def means_day(written: Written, day: datetime) -> bool:
    """Whether the day is meant, by the words of cron's manual."""
    of_month = day.day in written["day"][1]
    of_week = bool({day.isoweekday() % 7, day.isoweekday()} & written["weekday"][1])
    open_field = written["day"][0].startswith("*") or written["weekday"][0].startswith("*")
    return day.month in written["month"][1] and (of_month and of_week if open_field else of_month or of_week)


def means(written: Written, minute: datetime) -> bool:
    """Whether the minute is meant."""
    in_time = minute.minute in written["minute"][1] and minute.hour in written["hour"][1]
    return in_time and means_day(written, minute)


@settings(max_examples=examples(150), deadline=None)
@given(SCHEDULES, MINUTES)
def test_the_next_time_is_the_first_minute_that_is_meant(written: Written, start: int) -> None:
    searched = 4 * 24 * 60
    minutes = (EPOCH + timedelta(minutes=start + after) for after in range(1, searched + 1))
    expected = next((minute for minute in minutes if means(written, minute)), None)
    next_minute = Cron.parse(text_of(written)).next_after(start)
    if expected is not None:
        assert next_minute is not None
        assert EPOCH + timedelta(minutes=next_minute) == expected
    else:
        assert next_minute is None or next_minute > start + searched


@settings(max_examples=examples(150), deadline=None)
@given(SCHEDULES, MINUTES)
def test_the_next_day_is_the_first_one_that_is_meant(written: Written, start: int) -> None:
    written = {**written, "minute": ("30", {30}), "hour": ("12", {12})}
    searched = 9 * 366
    noon = (EPOCH + timedelta(minutes=start)).replace(hour=12, minute=30)
    days = (noon + timedelta(days=after) for after in range(searched))
    expected = next((day for day in days if day > EPOCH + timedelta(minutes=start) and means_day(written, day)), None)
    next_minute = Cron.parse(text_of(written)).next_after(start)
    if expected is not None:
        assert next_minute is not None
        assert EPOCH + timedelta(minutes=next_minute) == expected
    else:
        assert next_minute is None or next_minute > start + (searched - 1) * 24 * 60


@given(SCHEDULES, MINUTES)
def test_later_times_follow_in_order_and_only_in_minutes_that_are_meant(written: Written, start: int) -> None:
    schedule = Cron.parse(text_of(written))
    for _ in range(20):
        minute = schedule.next_after(start)
        if minute is None:
            return
        assert minute > start
        assert means(written, EPOCH + timedelta(minutes=minute))
        start = minute


@given(SCHEDULES)
def test_a_schedule_comes_if_it_has_a_next_time(written: Written) -> None:
    schedule = Cron.parse(text_of(written))
    assert schedule.comes == (schedule.next_after(0) is not None)


@given(st.text(alphabet="0123456789*/,- \tjanmonfri@?L#²٣\n", max_size=30) | st.text(max_size=20))
def test_a_text_is_a_schedule_or_has_a_fault_in_words(text: str) -> None:
    try:
        minute = Cron.parse(text).next_after(0)
    except CronError as fault:
        minute = None if str(fault) else -1
    assert minute is None or minute > 0


@pytest.mark.parametrize("case", cases("model/schedules.yaml"))
def test_a_schedule_has_the_times_of_its_case(case: dict[str, Any]) -> None:
    at = datetime.fromisoformat(case["after"]).replace(tzinfo=UTC)
    schedule, times = Cron.parse(case["schedule"]), []
    for _ in case["then"]:
        minute = schedule.next_after(int((at - EPOCH).total_seconds()) // 60)
        if minute is None:
            times.append("never")
            break
        at = EPOCH + timedelta(minutes=minute)
        times.append(at.strftime("%Y-%m-%d %H:%M %a"))
    assert times == case["then"]


@pytest.mark.parametrize("case", cases("model/not-schedules.yaml"))
def test_a_text_that_is_no_schedule_is_refused_with_place_and_reason(case: dict[str, Any]) -> None:
    with pytest.raises(CronError) as fault:
        Cron.parse(case["schedule"])
    assert [str(fault.value), fault.value.suggestion] == [case["message"], case.get("suggestion", "")]


def test_nothing_comes_after_the_last_year_of_the_calendar() -> None:
    last = int((datetime(9998, 12, 31, 23, 59, tzinfo=UTC) - EPOCH).total_seconds()) // 60
    daily = Cron.parse("59 23 * * *")
    assert daily.next_after(last - 1) == last
    assert daily.next_after(last) is None
    assert Cron.parse("0 0 1 1 *").next_after(last - 60) is None
