"""The recorded engine and schedules: each due time is one execution, through downtimes and set clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import RecordsError
from reconciler.planning.plan import Action, Step
from reconciler.records.store import Records
from tests.engines.test_recorded import WEST, RecordedHarness, workload
from tests.support.clock import START

KEY = "workload/shop/report"
MINUTE = int(START) // 60
"""2026-01-01T00:00:00Z."""


class Schedule(RecordedHarness):
    """A harness whose clock only the test sets."""

    @property
    def engine(self) -> RecordedEngine:
        return self.engines[WEST]  # type: ignore[return-value]

    def at(self, minutes: float) -> list[str]:
        """Let what is due be recorded ``minutes`` after the beginning; returns the executions, by minute if due."""
        self.time._passed = minutes * 60
        self.engine.record_due()
        return self.executions()

    def executions(self) -> list[str]:
        """The suffixes of the executions; of those at scheduled times, how many minutes after the beginning."""
        names = [each["name"].rpartition("-")[2] for each in self.state(KEY)["status"]["jobExecutions"]]
        return [f"+{int(each) - MINUTE}" if len(each) == len(str(MINUTE)) else each for each in names]

    def messages(self) -> list[str]:
        return [each.message for each in self.records.events.list() if each.reason == "ExecutionsMissed"]

    def restart(self) -> None:
        """A new daemon on the same records."""
        self.engines[WEST] = RecordedEngine(self.records, WEST, "acme", "example.net", self.clock)


def cron(schedule: str = "*/10 * * * *", **more: Any) -> Step:
    job = {"schedule": schedule, "historyLimit": 3} | more.pop("job", {})
    return workload("report", "cron", spec={"job": job} | more.pop("spec", {}), **more)


@pytest.fixture
def harness(tmp_path: Path) -> Schedule:
    schedule = Schedule(tmp_path)
    schedule.apply(cron())
    schedule.at(0)
    return schedule


def test_each_due_time_is_one_successful_execution_in_a_short_history(harness: Schedule) -> None:
    assert harness.engine.next_due() == START + 600
    assert harness.at(9.99) == []
    harness.records.status_queue.clear("main", [KEY], 1 << 40)
    assert harness.at(10) == ["+10"]
    assert KEY in harness.records.status_queue.take("main").keys
    [execution] = harness.state(KEY)["status"]["jobExecutions"]
    assert (execution["status"], execution["startTime"], execution["completionTime"]) == (
        "Success",
        "2026-01-01T00:10:00Z",
        "2026-01-01T00:10:00Z",
    )
    assert harness.at(10.5) == ["+10"]
    assert [harness.at(20), harness.at(30), harness.at(40)][-1] == ["+20", "+30", "+40"]
    assert harness.messages() == []


def test_executions_on_demand_have_numbers_between_scheduled_ones(harness: Schedule) -> None:
    harness.at(10)
    names = [harness.command(KEY, "runCronWorkload")["name"] for _ in range(2)]
    assert names == ["report-1", "report-2"]
    assert harness.at(20) == ["1", "2", "+20"]


def test_after_a_downtime_the_newest_time_runs_and_the_others_are_one_event(harness: Schedule) -> None:
    harness.at(10)
    harness.restart()
    assert harness.at(65) == ["+10", "+60"]
    assert harness.messages() == [
        "4 scheduled executions since 2026-01-01T00:20:00Z were missed; 2026-01-01T01:00:00Z runs"
    ]
    harness.restart()
    assert harness.at(66) == ["+10", "+60"]


def test_a_month_of_a_schedule_of_every_minute_is_one_execution_and_one_event(harness: Schedule) -> None:
    harness.apply(cron("* * * * *", action=Action.UPDATE, version=2))
    harness.at(1)
    harness.restart()
    assert harness.at(43_200) == ["+43200"]
    [message] = harness.messages()
    assert message.startswith("more than 1000 scheduled executions since 2026-01-01T00:02:00Z were missed")


def test_a_suspended_schedule_has_missed_nothing_when_it_goes_on(harness: Schedule) -> None:
    harness.apply(cron(job={"suspend": True}, action=Action.UPDATE))
    assert (harness.at(25), harness.engine.next_due()) == ([], None)
    harness.apply(cron(action=Action.UPDATE))
    harness.restart()
    assert harness.at(35) == []
    assert harness.at(40) == ["+40"]
    options = {"autoscaling": {}, "suspend": True}
    harness.apply(cron(spec={"defaultOptions": options}, action=Action.UPDATE))
    assert harness.at(50) == ["+40"]
    assert harness.messages() == []


def test_a_changed_schedule_begins_when_it_is_applied(harness: Schedule) -> None:
    harness.apply(cron("5 * * * *", action=Action.UPDATE, version=2))
    assert harness.at(10) == []
    assert harness.engine.next_due() == START + 3900
    assert harness.at(65) == ["+65"]


def test_a_clock_that_is_ahead_for_a_moment_stops_no_schedule_and_runs_nothing_twice(harness: Schedule) -> None:
    assert harness.at(10) == ["+10"]
    assert harness.at(130) == ["+10", "+130"]
    assert harness.at(20) == ["+10", "+130"], "it begins anew, and this time may have been missed"
    assert harness.at(30) == ["+10", "+130", "+30"]
    missed = harness.messages()
    harness.restart()
    for minute in range(40, 140, 10):
        found = harness.at(minute)
        assert len(set(found)) == len(found)
        assert f"+{minute}" in found
    assert harness.messages() == missed


def test_a_clock_that_is_set_back_starts_nothing_twice_and_far_back_begins_anew(harness: Schedule) -> None:
    harness.at(60)
    assert (harness.at(0), harness.at(60)) == (["+60"], ["+60"])
    assert harness.at(70) == ["+60", "+70"]
    assert harness.at(10 * 1440) == ["+60", "+70", "+14400"]
    assert harness.at(80) == ["+60", "+70", "+14400"]
    assert harness.at(90) == ["+70", "+14400", "+90"]


def test_a_new_workload_of_a_former_name_has_missed_nothing(harness: Schedule) -> None:
    harness.apply(cron(action=Action.DELETE))
    harness.engine.record_due()
    assert harness.records.schedules.at_location(WEST) == {}
    harness.time._passed = 1800
    harness.apply(cron())
    assert (harness.at(35), harness.messages()) == ([], [])
    other = msgspec.structs.replace(harness.record(KEY), engine="host")
    harness.records.applied.put(other)
    harness.restart()
    assert harness.at(65) == []
    assert harness.engine.next_due() is None
    harness.apply(cron(action=Action.REPLACE, version=2))
    assert (harness.at(66), harness.at(70)) == ([], ["+70"])


def test_an_engine_that_took_over_without_a_position_begins_now(harness: Schedule) -> None:
    harness.records.schedules.remove_many(WEST, [harness.record(KEY).key])
    harness.restart()
    assert (harness.at(35), harness.at(40)) == ([], ["+40"])


def test_what_could_not_be_written_is_recorded_the_next_time(harness: Schedule) -> None:
    harness.at(10)
    reader = Records.open(harness.records.path, read_only=True)
    engine = RecordedEngine(reader, WEST, "acme", "example.net", harness.clock)
    harness.time._passed = 1200
    with pytest.raises(RecordsError):
        engine.record_due()
    engine._schedules._records = harness.records
    engine.record_due()
    assert harness.executions() == ["+10", "+20"]
    reader.close()


def test_other_workloads_and_places_have_no_schedules(harness: Schedule) -> None:
    harness.apply(workload("api"), workload("cron"))
    harness.at(1)
    assert [str(key) for key in harness.records.schedules.at_location(WEST)] == [KEY]
    central = harness.engines[""]
    assert isinstance(central, RecordedEngine)
    central.record_due()
    assert central.next_due() is None
