"""What the volumes of volume sets are and need: a case for each rule of docs/platform/volumeset.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions.volumes import (
    SCHEDULED,
    ScheduleState,
    compute_expiry,
    due_snapshot,
    existing_volumes,
    grown_capacity,
    list_limitations,
    retention_seconds,
    scheduled_name,
    select_expired_snapshots,
)
from reconciler.engines.host.volumes.layout import GIB, VolumeState
from reconciler.engines.host.volumes.protocol import BEFORE_RESTORE, StoredSnapshot, StoredVolume
from reconciler.engines.volumes import (
    ReplicaVolume,
    Snapshot,
    VolumeLifecycle,
    VolumeSetState,
    bind_volumes,
    data_in_words,
)
from reconciler.model.kinds.volumeset import Growth, Snapshots
from reconciler.times import ExpiryTime, format_iso_time, parse_time
from tests.support.cases import cases

BEGIN = int(datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()) // 60


def test_growth_that_stops_a_replica_is_a_limitation_and_in_the_status() -> None:
    ready = StoredVolume(0, "image-ext4", "ext4", 10, VolumeState.READY, enforced=True, freezes=True)
    offline = msgspec.structs.replace(ready, grows_detached=True)
    sentence = (
        "Volumes that are images with ext4 grow in use only with CAP_SYS_RESOURCE: their replica stops meanwhile."
    )
    assert [sentence in list_limitations([each]) for each in (ready, offline)] == [False, True]
    found = [existing_volumes(VolumeSetState("here"), [each], {}).volumes[0] for each in (ready, offline)]
    assert [each.grows_detached for each in found] == [msgspec.UNSET, True]


def stored(index: int, capacity: float = 10, state: str = "ready", used: int = 0, lost: bool = False) -> StoredVolume:
    return StoredVolume(index, "directory", "", capacity, VolumeState(state), lost=lost)


@pytest.mark.parametrize("case", cases("host/volumes.yaml"))
def test_the_volumes_of_the_status_are_those_that_exist(case: dict[str, Any]) -> None:
    before = tuple(
        ReplicaVolume(value["index"], VolumeLifecycle(value["lifecycle"]), value["currentSize"])
        for value in case.get("claimed", ())
    )
    claimed = bind_volumes(VolumeSetState("here", before), case.get("workload", "db"), case.get("bound", 0), 10)
    there = case.get("stored", [])
    used = {value["index"]: value.get("used", 0) for value in there}
    found = existing_volumes(claimed, [stored(**value) for value in there], used).volumes
    lines = [f"{volume.index} {volume.lifecycle} {volume.current_size:g}" for volume in found]
    uses = [f" used {volume.current_bytes_used}" if volume.current_bytes_used else "" for volume in found]
    assert [line + use for line, use in zip(lines, uses, strict=True)] == case["volumes"]


@pytest.mark.parametrize("case", cases("host/growth.yaml"))
def test_a_volume_grows_as_it_fills(case: dict[str, Any]) -> None:
    growth = Growth(case.get("max"), case.get("free"), case.get("factor"))
    assert grown_capacity(growth, case["capacity"], int(case["used"] * GIB)) == case.get("grown")


@pytest.mark.parametrize("case", cases("host/snapshots.yaml"))
def test_a_scheduled_snapshot_is_due_once(case: dict[str, Any]) -> None:
    schedule, checked = case.get("state", ["", 0])
    state = ScheduleState(schedule, checked + BEGIN)
    after, due = due_snapshot(state, Snapshots(schedule=case.get("schedule")), (case["now"] + BEGIN) * 60.0 + 7)
    assert [after.schedule, after.checked - BEGIN] == case["after"]
    assert due == (case["due"] + BEGIN if "due" in case else None)


@pytest.mark.parametrize("case", cases("host/expiry.yaml"))
def test_snapshots_expire_but_for_the_newest_of_the_schedule(case: dict[str, Any]) -> None:
    snapshots = [
        StoredSnapshot(
            value["name"],
            f"{value['created']}T00:00:00Z",
            10,
            0,
            "",
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


def scheduled(day: int, *, lasts: int = 1) -> StoredSnapshot:
    """A snapshot of the schedule, taken on a day of January 2026 (or that many days after it began)."""
    at = parse_time("2025-12-31T00:00:00Z") + day * DAY
    return StoredSnapshot(
        str(day), format_iso_time(at), 10, 0, "", format_iso_time(at + lasts * DAY), {SCHEDULED: "0 3 * * *"}
    )


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
    at = StoredSnapshot("first", format_iso_time(60.0), 10, 0, "", format_iso_time(DAY), {SCHEDULED: "0 3 * * *"})
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


def test_what_an_approval_would_delete_in_words() -> None:
    snapshots = tuple(Snapshot(name, f"2026-01-0{name}T00:00:00Z", 10) for name in "21")
    volumes = (
        ReplicaVolume(0, VolumeLifecycle.BOUND, 10, GIB * 3 // 2, snapshots),
        ReplicaVolume(1, VolumeLifecycle.UNBOUND, 10, 4096),
        ReplicaVolume(2, VolumeLifecycle.DELETED, 0, 0, snapshots),
        ReplicaVolume(3, VolumeLifecycle.UNBOUND, 10),
    )
    assert data_in_words(VolumeSetState("here", volumes)) == (
        "volume 0 with 1.5 GiB used, newest snapshot of 2026-01-02T00:00:00Z; volume 1 with 4.0 KiB used, no snapshot; "
        "volume 3 with 0 bytes used, no snapshot"
    )
