"""Snapshots of a cluster by schedule: taken once, retried without a storm, deleted when they are over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.protocol import Result
from reconciler.planning.plan import Step
from reconciler.reasons import ConditionType, Reason
from tests.engines.kubernetes.engine_kit import SPACE
from tests.engines.kubernetes.volume_kit import (
    CLAIM,
    DATA,
    HOURS,
    MINUTES,
    VolumeHarness,
    end_step,
    make_user_step,
    make_volume_step,
    volumes_on_fake,
)

HOURLY = {"schedule": "0 * * * *"}
FOR_A_DAY = {"schedule": "0 * * * *", "retentionDuration": "1d"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VolumeHarness]:
    with volumes_on_fake(tmp_path) as harness:
        yield harness


def begin(harness: VolumeHarness, snapshots: dict[str, object], tags: dict[str, str] | None = None) -> None:
    """Apply a volume set with its workload, and let its schedule begin."""
    harness.apply_data(tags, snapshots=snapshots)
    harness.apply_user()
    harness.begin_schedules()
    assert harness.snapshots() == []


def pass_hours(harness: VolumeHarness, hours: int) -> None:
    """Let hours pass, with a look of the watcher and of the controller in each."""
    for _ in range(hours):
        harness.pass_time(HOURS)
        harness.check()
        harness.finish_snapshots()


def conditions_of(harness: VolumeHarness) -> dict[ConditionType, str]:
    """The conditions of the volume set, with their messages."""
    return {condition.type: condition.message for condition in engine_conditions(harness.see_data().encode())}


def test_a_snapshot_is_taken_once_at_its_time(harness: VolumeHarness) -> None:
    begin(harness, FOR_A_DAY)
    pass_hours(harness, 1)
    [name] = harness.snapshots()
    assert name.startswith("scheduled-")
    harness.check()
    harness.begin_anew()
    harness.begin_schedules()
    assert harness.snapshots() == [name]
    [snapshot] = harness.see_volume().volume_snapshots
    assert (snapshot.name, snapshot.tags) == (name, {"reconciler/schedule": "0 * * * *"})
    assert snapshot.expires > snapshot.created
    assert ConditionType.NOT_ENFORCED not in conditions_of(harness)


def test_nothing_is_taken_before_git_was_read(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    harness.begin_anew()
    harness.pass_time(HOURS)
    harness.check()
    assert harness.snapshots() == []
    harness.begin_schedules()
    assert len(harness.snapshots()) == 1


def test_after_a_downtime_the_newest_missed_time_counts(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    harness.pass_time(30 * HOURS)
    harness.begin_anew()
    harness.begin_schedules()
    assert len(harness.snapshots()) == 1


def test_a_clock_that_goes_back_takes_nothing_twice(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    pass_hours(harness, 2)
    before = harness.snapshots()
    harness.clock.error = -2 * HOURS
    harness.check()
    harness.clock.error = HOURS
    harness.check()
    harness.check()
    assert len(harness.snapshots()) == len(before) + 1


def test_a_kill_between_the_snapshot_and_its_note_takes_no_second_one(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    harness.pass_time(HOURS)
    harness.server.fail("patch persistentvolumeclaims", 500, -1)
    harness.check()
    harness.server.heal()
    harness.finish_snapshots()
    harness.begin_anew()
    harness.begin_schedules()
    assert len(harness.snapshots()) == 1


def test_a_suspended_workload_has_its_snapshots_too(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    harness.apply_user(version=2, replicas=1)
    harness.server.scale("StatefulSet", "web", SPACE, 0)
    pass_hours(harness, 1)
    assert len(harness.snapshots()) == 1


def test_snapshots_expire_but_for_the_newest_one(harness: VolumeHarness) -> None:
    begin(harness, FOR_A_DAY)
    pass_hours(harness, 3)
    harness.apply_data(version=2, snapshots={"retentionDuration": "1d"})
    newest = harness.snapshots()[-1]
    harness.events()
    harness.pass_time(48 * HOURS)
    harness.check()
    assert harness.snapshots() == [newest]
    assert [event.partition(":")[0] for event in harness.events()] == [Reason.SNAPSHOT_EXPIRED] * 2


def test_the_newest_ones_of_the_schedule_stay(harness: VolumeHarness) -> None:
    begin(harness, HOURLY, {"reconciler/snapshot-keep-last": "2"})
    where = {"location": "here", "volumeIndex": 0, "snapshotName": "by hand"}
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "one"))
    harness.finish_snapshots()
    pass_hours(harness, 4)
    harness.check()
    assert len(harness.snapshots()) == 3
    assert "by hand" in harness.snapshots()


def test_one_that_fails_deletes_none_that_can_be_restored(harness: VolumeHarness) -> None:
    begin(harness, HOURLY, {"reconciler/snapshot-keep-last": "1"})
    pass_hours(harness, 1)
    [good] = harness.snapshots()
    for _ in range(4):
        harness.pass_time(HOURS)
        harness.check()
        harness.fail_snapshots("the backend is full")
    assert good in harness.snapshots()
    assert "the backend is full" in conditions_of(harness)[ConditionType.SNAPSHOT_FAILING]
    harness.check()
    assert len(harness.snapshots()) == 2, "failed ones do not pile up"


def test_a_refused_snapshot_is_tried_again_after_a_while(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    harness.pass_time(HOURS)
    harness.server.fail("create volumesnapshots.snapshot.storage.k8s.io", 403, -1, message="exceeded quota: storage")
    harness.server.clear_requests()
    for _ in range(4):
        harness.check()
    assert len(harness.server.requests_of("create")) == 1
    assert "exceeded quota" in conditions_of(harness)[ConditionType.SNAPSHOT_FAILING]
    assert [event.partition(":")[0] for event in harness.events()] == [Reason.SNAPSHOT_FAILED]
    harness.server.heal()
    harness.pass_time(2 * MINUTES)
    harness.check()
    assert len(harness.snapshots()) == 1
    assert ConditionType.SNAPSHOT_FAILING not in conditions_of(harness)


def test_without_a_controller_there_is_one_object_and_a_condition(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    for _ in range(5):
        harness.pass_time(HOURS)
        harness.check()
    assert len(harness.snapshots()) == 1
    assert "see whether a snapshot controller runs" in conditions_of(harness)[ConditionType.SNAPSHOT_FAILING]
    harness.finish_snapshots()
    harness.check()
    assert ConditionType.SNAPSHOT_FAILING not in conditions_of(harness)


def test_a_snapshot_of_others_is_never_deleted(harness: VolumeHarness) -> None:
    begin(harness, FOR_A_DAY)
    source = {"source": {"persistentVolumeClaimName": CLAIM}}
    claim = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)["metadata"]
    labels = {"labels": claim["labels"], "annotations": {"reconciler.dev/key": str(DATA)}}
    for name, metadata in (("theirs", {}), ("copied", labels)):
        value = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "spec": source}
        harness.server.create({**value, "metadata": {"name": name, "namespace": SPACE, **metadata}})
    harness.pass_time(72 * HOURS)
    harness.check()
    harness.apply_data(version=2, snapshots={"createFinalSnapshot": False})
    remove(harness)
    names = [value["metadata"]["name"] for value in harness.server.objects("VolumeSnapshot", SPACE)]
    assert sorted(names) == ["copied", "theirs"]


def test_a_volume_set_that_is_deleted_while_a_snapshot_runs_takes_it_along(harness: VolumeHarness) -> None:
    begin(harness, {**HOURLY, "createFinalSnapshot": False})
    harness.pass_time(HOURS)
    harness.check()
    assert len(harness.snapshots()) == 1
    remove(harness)
    harness.check()
    assert harness.snapshots() == []
    harness.apply_data(version=2, snapshots=HOURLY)
    harness.apply_user(version=2)
    harness.check()
    assert harness.see_volume().volume_snapshots == ()
    assert harness.snapshots() == [], "a schedule begins anew with its volume"


def finish(harness: VolumeHarness, ending: Step) -> None:
    """Perform a deletion until it is done."""
    harness.until(lambda: harness.apply(ending)[str(ending.key)].result is Result.APPLIED, f"{ending.key} is gone")
    harness.catch_up()


def remove(harness: VolumeHarness) -> None:
    """Delete the workload, then the volume set."""
    for needed in (make_user_step(version=9), make_volume_step(version=9)):
        finish(harness, end_step(needed))


def test_final_snapshots_come_before_the_volumes_go(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    pass_hours(harness, 1)
    web, data = (end_step(needed) for needed in (make_user_step(version=9), make_volume_step(version=9)))
    finish(harness, web)
    outcome = harness.apply(data)[str(data.key)]
    assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.TERMINATING)
    assert "no snapshot controller has begun" in outcome.message
    assert harness.names("PersistentVolumeClaim") == [CLAIM]
    harness.fail_snapshots("the backend is full")
    outcome = harness.apply(data)[str(data.key)]
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.SNAPSHOT_FAILED)
    assert "createFinalSnapshot: false" in outcome.message
    harness.begin_anew()
    for value in harness.list_snapshots():
        harness.set_status(value, {"readyToUse": True, "restoreSize": "10Gi", "error": None})
    harness.catch_up()
    finish(harness, data)
    assert harness.names("PersistentVolumeClaim") == []
    settings = harness.engine._context.settings
    reader = KubernetesReader(settings, "here")
    [final] = reader.final_snapshots()
    assert (final.key, final.index, [final.snapshot.name]) == (DATA, 0, harness.snapshots())
    reader.delete_final_snapshot(final)
    assert harness.snapshots() == []


def test_a_final_snapshot_survives_the_name_that_is_used_again(harness: VolumeHarness) -> None:
    begin(harness, HOURLY)
    web, data = (end_step(needed) for needed in (make_user_step(version=9), make_volume_step(version=9)))
    finish(harness, web)
    harness.apply(data)
    harness.finish_snapshots()
    finish(harness, data)
    [final] = harness.snapshots()
    harness.apply_data(version=2, snapshots={**FOR_A_DAY, "createFinalSnapshot": False})
    harness.apply_user(version=2)
    harness.check()
    assert harness.see_volume().volume_snapshots == ()
    pass_hours(harness, 3)
    remove(harness)
    assert harness.snapshots() == [final]


def test_without_the_kind_nothing_is_tried_and_it_is_named(tmp_path: Path) -> None:
    with volumes_on_fake(tmp_path, "PodMetrics") as harness:
        harness.apply_data(snapshots=HOURLY)
        harness.apply_user()
        harness.begin_schedules()
        harness.pass_time(HOURS)
        harness.check()
        message = conditions_of(harness)[ConditionType.NOT_ENFORCED]
        assert "No snapshot is taken by schedule: the cluster does not serve VolumeSnapshot." in message
        assert "before a volume is deleted" in message
        remove(harness)
        assert harness.names("PersistentVolumeClaim") == []
