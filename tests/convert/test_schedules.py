"""Schedules of CronJobs mean the same after their conversion, or a remark has the difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.kubernetes.schedules import convert_schedule
from reconciler.model.cron import SHORTHANDS, Cron, CronError
from tests.model.test_cron import EPOCH, NAMES
from tests.support.cases import cases

CASES = cases("model/schedules-of-kubernetes.yaml")
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))


def next_run(text: str, after: str | datetime) -> str:
    """The next run as a text; never, if there is none."""
    at = datetime.fromisoformat(after) if isinstance(after, str) else after
    found = Cron.parse(text).next_after(int((at.replace(tzinfo=UTC) - EPOCH).total_seconds()) // 60)
    return "never" if found is None else f"{EPOCH + timedelta(minutes=found):%Y-%m-%d %H:%M}"


@pytest.mark.parametrize("case", CASES)
def test_a_schedule_is_converted_as_its_case_expects(case: dict[str, Any]) -> None:
    schedule = convert_schedule(case["schedule"])
    assert (schedule.text, schedule.zone) == (case.get("here", case["schedule"]), case.get("zone", ""))
    assert schedule.change == case.get("differs", "")
    if case.get("refused"):
        with pytest.raises(CronError):
            Cron.parse(schedule.text)
        return
    for time in [*case.get("runs", ()), *case.get("rests", ())]:
        before = datetime.fromisoformat(time) - timedelta(minutes=1)
        assert (next_run(schedule.text, before) == time) == (time in case.get("runs", ())), time
    if "after" in case:
        assert next_run(schedule.text, case["after"]) == case["then"]


def read(text: str) -> list[tuple[set[int], bool]]:
    """Each field as robfig/cron reads it: its values, and whether it is open."""
    fields = SHORTHANDS.get(text, text).split()
    return [read_field(field, *bounds) for field, bounds in zip(fields, FIELDS, strict=True)]


def read_field(text: str, kind: str, low: int, high: int) -> tuple[set[int], bool]:
    values, is_open = set[int](), False
    for entry in filter(None, text.split(",")):
        span, slash, step = entry.partition("/")
        every = int(step or 1)
        first, dash, last = span.partition("-")
        if first in ("*", "?"):
            values |= {*range(low, high + 1, every)}
            is_open |= every == 1
        else:
            begin = number(first, kind)
            end = number(last, kind) if dash else high if slash else begin
            values |= {*range(begin, end + 1, every)}
    return values, is_open


def number(text: str, kind: str) -> int:
    return int(text) if text.isdigit() else NAMES[kind].index(text.lower())


@st.composite
def entries(draw: Any, kind: str, low: int, high: int) -> str:
    begin, end = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    first = NAMES[kind][begin] if kind in NAMES and draw(st.booleans()) else str(begin)
    step = draw(st.sampled_from(["", "/1", "/2", "/7", "/31", "/90"]))
    return draw(st.sampled_from(["*", "?", first, f"{first}-{end}", f"{begin:02}"])) + step


FIELD_TEXTS = (st.lists(entries(*bounds), min_size=1, max_size=3).map(",".join) for bounds in FIELDS)
TEXTS = st.tuples(*FIELD_TEXTS).map(" ".join) | st.sampled_from(sorted(SHORTHANDS))


@given(TEXTS)
def test_the_fields_of_any_schedule_mean_the_same(text: str) -> None:
    cron = Cron.parse(convert_schedule(text).text)
    expected = read(text)
    bits = [sum(1 << value for value in values) for values, _ in expected]
    assert [cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays] == bits
    assert cron.either == (not expected[2][1] and not expected[4][1])


@given(st.text(alphabet="0123456789*/,-? \tjanmonTZCRON_=@everyhms.", max_size=40) | st.text(max_size=20))
def test_no_text_makes_a_conversion_fail(text: str) -> None:
    found = convert_schedule(text).text
    assert found == "" or len(found.split()) == 5
