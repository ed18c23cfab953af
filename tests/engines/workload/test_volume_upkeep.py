"""What volumes need by themselves, on every engine: a case for each rule of docs/platform/volumeset.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from reconciler.engines.volumes import BEFORE_RESTORE, Snapshot
from reconciler.engines.workload.volume_upkeep import (
    SCHEDULED,
    ScheduleState,
    compute_expiry,
    due_snapshot,
    grown_capacity,
    retention_seconds,
    scheduled_name,
    select_expired_snapshots,
)
from reconciler.model.kinds.volumeset import Growth, Snapshots
from reconciler.model.quantity import GIB
from reconciler.times import ExpiryTime, format_iso_time, parse_time
from tests.support.cases import cases

BEGIN = int(datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()) // 60


@pytest.mark.parametrize("case", cases("workload/growth.yaml"))
def test_a_volume_grows_as_it_fills(case: dict[str, Any]) -> None:
    growth = Growth(case.get("max"), case.get("free"), case.get("factor"))
    assert grown_capacity(growth, case["capacity"], int(case["used"] * GIB)) == case.get("grown")


@pytest.mark.parametrize("case", cases("workload/snapshots.yaml"))
def test_a_scheduled_snapshot_is_due_once(case: dict[str, Any]) -> None:
    schedule, checked = case.get("state", ["", 0])
    state = ScheduleState(schedule, checked + BEGIN)
    after, due = due_snapshot(state, Snapshots(schedule=case.get("schedule")), (case["now"] + BEGIN) * 60.0 + 7)
    assert [after.schedule, after.checked - BEGIN] == case["after"]
    assert due == (case["due"] + BEGIN if "due" in case else None)


@pytest.mark.parametrize("case", cases("workload/expiry.yaml"))
def test_snapshots_expire_but_for_the_newest_of_the_schedule(case: dict[str, Any]) -> None:
    snapshots = [
        Snapshot(
            value["name"],
            f"{value['created']}T00:00:00Z",
            10,
            f"{value['expires']}T00:00:00Z" if "expires" in value else "",
            {
                **({SCHEDULED: "0 3 * * *"} if value.get("scheduled") else {}),
                **({BEFORE_RESTORE: "first"} if value.get("replaced") else {}),
            },
        )
        for value in case["snapshots"]
    ]
    now = datetime.fromisoformat("2026-01-10T00:00:00Z").timestamp()
    assert list(select_expired_snapshots(snapshots, ExpiryTime(now, now), case.get("keep"))) == case["expired"]


DAY = 86_400.0


def scheduled(day: int, *, lasts: int = 1) -> Snapshot:
    """A snapshot of the schedule, taken on a day of January 2026 (or that many days after it began)."""
    at = parse_time("2025-12-31T00:00:00Z") + day * DAY
    return Snapshot(str(day), format_iso_time(at), 10, format_iso_time(at + lasts * DAY), {SCHEDULED: "0 3 * * *"})


def test_a_clock_that_jumps_ahead_makes_no_snapshot_old_that_was_there() -> None:
    now = parse_time("2026-01-10T12:00:00Z")
    there = [scheduled(7), scheduled(8), scheduled(9, lasts=400)]
    assert select_expired_snapshots(there, ExpiryTime(now, now), 2) == ("7", "8")
    ahead = ExpiryTime(now + 400 * DAY, now - 3 * DAY, now + 400 * DAY)
    assert select_expired_snapshots(there, ahead, 1) == ()
    taken_since = scheduled(411, lasts=0)
    assert select_expired_snapshots([*there, taken_since, scheduled(412)], ahead._replace(now=now + 402 * DAY)) == (
        "411",
    )


def test_a_snapshot_from_the_future_makes_no_other_one_old() -> None:
    now = parse_time("2026-01-10T12:00:00Z")
    there = [scheduled(day, lasts=500) for day in (8, 9, 10, 400)]
    assert select_expired_snapshots(there, ExpiryTime(now, now), 2) == ("8",)


def test_a_snapshot_of_a_host_that_did_not_know_the_time_stays() -> None:
    now = parse_time("2026-01-10T12:00:00Z")
    at = Snapshot("first", format_iso_time(60.0), 10, format_iso_time(DAY), {SCHEDULED: "0 3 * * *"})
    assert select_expired_snapshots([at, scheduled(9), scheduled(10)], ExpiryTime(now, now)) == ("9",)


def test_durations_of_the_retention_and_names_of_scheduled_snapshots() -> None:
    assert [retention_seconds(text) for text in ("7d", "1.5h", "30m", "", "7", "xd")] == [
        604800,
        5400,
        1800,
        None,
        None,
        None,
    ]
    now = BEGIN * 60.0
    assert [compute_expiry(Snapshots(retention_duration=text), now) for text in ("1d", "")] == [
        "2026-01-02T00:00:00Z",
        "",
    ]
    assert scheduled_name(BEGIN + 180) == "scheduled-20260101T030000Z"
