"""Drift and the number of its healings in the records."""

from __future__ import annotations

from reconciler.records.store import Records
from reconciler.records.tables.drift import HOUR, DriftRow
from reconciler.times import ExpiryTime

KEY = "workload/shop/web"
AT = 1_800_000_000.0


def test_drift_is_stored_by_key_and_location() -> None:
    records = Records.open(None)
    here, there = (DriftRow(KEY, place, "main", AT, b"{}") for place in ("here", "there"))
    nobodys = DriftRow("workload/shop/old", "here", "", AT, b"{}")
    records.drifts.put_many([there, nobodys, here])
    assert records.drifts.all() == [nobodys, here, there]
    assert (records.drifts.all("main"), records.drifts.all("")) == ([here, there], [nobodys])
    in_conflict = DriftRow(KEY, "here", "main", AT, b"{}", in_conflict=True)
    records.drifts.put_many([in_conflict])
    records.drifts.remove(KEY, "there")
    assert records.drifts.all("main") == [in_conflict]


def by(now: float) -> ExpiryTime:
    """The time of a clock that was not set."""
    return ExpiryTime(now, now)


def test_the_time_of_the_last_check_is_stored() -> None:
    records = Records.open(None)
    assert records.drifts.last_checked_at() is None
    records.drifts.check(AT)
    records.drifts.check(AT + 1.5)
    assert records.drifts.last_checked_at() == AT + 1.5


def test_heals_count_for_an_hour_and_for_what_they_brought_back() -> None:
    heals = Records.open(None).heal_counts
    heals.add(KEY, "there", "d1", by(AT))
    heals.add(KEY, "here", "d2", by(AT))
    for second in (0.0, 10.0):
        heals.add(KEY, "here", "d1", by(AT + second))
    assert heals.count(KEY, "here", "d1", by(AT + 10)) == 2
    assert heals.count(KEY, "here", "d1", by(AT + HOUR)) == 1
    assert heals.count(KEY, "here", "d1", by(AT + HOUR + 10)) == 0
    assert heals.count(KEY, "here", "d2", by(AT + 10)) == 1


def test_a_clock_that_was_put_back_makes_no_fight_of_old_heals() -> None:
    heals = Records.open(None).heal_counts
    heals.add(KEY, "here", "d1", by(AT + 7200))
    assert heals.count(KEY, "here", "d1", by(AT)) == 0
    heals.add(KEY, "here", "d1", by(AT))
    assert heals.count(KEY, "here", "d1", by(AT + 7200)) == 0
    assert heals.count(KEY, "here", "d1", by(AT)) == 1


def test_a_clock_that_jumps_ahead_forgets_no_heal() -> None:
    heals, later = Records.open(None).heal_counts, AT + 400 * 86_400
    heals.add(KEY, "here", "d1", by(AT))
    ahead = ExpiryTime(later, AT + 60, later)
    heals.add(KEY, "here", "d1", ahead)
    assert heals.count(KEY, "here", "d1", ahead) == 2
    assert heals.count(KEY, "here", "d1", by(later + HOUR)) == 0


def test_a_forgotten_drift_is_counted_anew_and_no_conflict() -> None:
    records = Records.open(None)
    records.drifts.put_many([DriftRow(KEY, "here", "main", AT, b"{}", in_conflict=True)])
    records.heal_counts.add(KEY, "here", "d1", by(AT))
    records.heal_counts.add("workload/shop/other", "here", "d1", by(AT))
    assert records.heal_counts.forget(KEY) == 2
    assert [row.in_conflict for row in records.drifts.all()] == [False]
    assert records.heal_counts.count("workload/shop/other", "here", "d1", by(AT)) == 1
    assert records.heal_counts.forget(KEY) == 0
