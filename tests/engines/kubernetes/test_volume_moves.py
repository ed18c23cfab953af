"""A volume set that moves to another workload of a cluster takes its data along, whatever happens amid that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.protocol import Outcome, Result
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import SPACE
from tests.engines.kubernetes.volume_kit import (
    DATA,
    VolumeHarness,
    end_step,
    make_user_step,
    stop_after,
    volumes_on_fake,
)

REPLICAS = 2


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VolumeHarness]:
    with volumes_on_fake(tmp_path) as harness:
        harness.apply_data()
        harness.apply_user("db", replicas=REPLICAS)
        yield harness


def volumes_by_claim(harness: VolumeHarness) -> dict[str, str]:
    """The PersistentVolume of each claim."""
    claims = harness.server.objects("PersistentVolumeClaim", SPACE)
    return {claim["metadata"]["name"]: claim["spec"].get("volumeName", "") for claim in claims}


def release(harness: VolumeHarness) -> dict[str, str]:
    """Delete the workload, whose volumes stay; returns them."""
    before = volumes_by_claim(harness)
    ending = end_step(make_user_step("db", replicas=REPLICAS))
    harness.until(lambda: harness.apply(ending)[str(ending.key)].result is Result.APPLIED, "the workload is gone")
    harness.catch_up()
    assert volumes_by_claim(harness) == before
    return before


def take(harness: VolumeHarness, name: str = "store", replicas: int = REPLICAS) -> Outcome:
    """Apply another workload with the volume set."""
    [outcome] = harness.apply(make_user_step(name, replicas=replicas)).values()
    return outcome


def assert_moved(harness: VolumeHarness, before: dict[str, str], name: str = "store") -> None:
    """Every volume is that of the new workload, as it was, and nothing of the move is left."""
    moved = {claim.replace("-db-", f"-{name}-"): volume for claim, volume in before.items()}
    assert volumes_by_claim(harness) == moved
    for volume in harness.server.objects("PersistentVolume"):
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert "reconciler.dev/reclaim-policy" not in (volume["metadata"].get("annotations") or {})
    for claim in harness.server.objects("PersistentVolumeClaim", SPACE):
        assert claim["status"]["phase"] == "Bound"
        assert "reconciler.dev/moved-from" not in claim["metadata"]["annotations"]
        assert claim["metadata"]["labels"]["reconciler.dev/workload"] == name


def test_a_renamed_workload_has_its_volumes(harness: VolumeHarness) -> None:
    before = release(harness)
    assert take(harness).result is Result.APPLIED
    assert_moved(harness, before)
    harness.until(lambda: harness.see_volume(1).lifecycle == "bound", "its volumes are seen")
    harness.server.clear_requests()
    harness.apply(make_user_step("store", replicas=REPLICAS))
    assert harness.writes() == []


def test_volumes_without_a_replica_move_too(harness: VolumeHarness) -> None:
    before = release(harness)
    assert take(harness, replicas=1).result is Result.APPLIED
    assert_moved(harness, before)


def test_snapshots_stay_with_their_volume(harness: VolumeHarness) -> None:
    where = {"location": "here", "volumeIndex": 1, "snapshotName": "nightly"}
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "one"))
    harness.finish_snapshots()
    release(harness)
    take(harness)
    harness.until(lambda: harness.see_volume(1).lifecycle == "bound", "its volumes are seen")
    assert [snapshot.name for snapshot in harness.see_volume(1).volume_snapshots] == ["nightly"]
    assert harness.see_volume(0).volume_snapshots == ()
    harness.server.controllers.kubelet.takes_snapshots = True
    harness.do(harness.engine.command(DATA, "restoreVolume", where, "two"))
    claim = harness.server.object("PersistentVolumeClaim", "data-store-1", SPACE)
    assert claim["spec"]["dataSource"]["name"] == harness.list_snapshots()[0]["metadata"]["name"]


def test_volumes_in_use_are_waited_for(harness: VolumeHarness) -> None:
    before = volumes_by_claim(harness)
    outcome = take(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.VOLUME_IN_USE)
    assert outcome.retry
    assert volumes_by_claim(harness) == before
    release(harness)
    assert take(harness).result is Result.APPLIED
    assert_moved(harness, before)


def test_two_volumes_of_one_index_are_never_mixed(harness: VolumeHarness) -> None:
    before = release(harness)
    assert take(harness).result is Result.APPLIED
    claim = harness.server.object("PersistentVolumeClaim", "data-store-0", SPACE)
    metadata = {name: claim["metadata"][name] for name in ("namespace", "labels", "annotations")}
    spec = {name: value for name, value in claim["spec"].items() if name != "volumeName"}
    other = {"metadata": {**metadata, "name": "data-db-0"}, "spec": spec}
    harness.server.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **other})
    harness.catch_up()
    harness.until(lambda: take(harness).result is Result.FAILED, "it is refused")
    outcome = take(harness)
    assert (outcome.reason, outcome.retry) == (Reason.VOLUME_IN_USE, False)
    assert "data-db-0" in outcome.message
    assert "data-store-0" in outcome.message
    assert volumes_by_claim(harness)["data-store-0"] == before["data-db-0"]


def test_a_workload_whose_name_begins_like_another_one_takes_nothing_of_it(harness: VolumeHarness) -> None:
    before = release(harness)
    assert take(harness, "db-b").result is Result.APPLIED
    assert_moved(harness, before, "db-b")
    ending = end_step(make_user_step("db-b", replicas=REPLICAS))
    harness.until(lambda: harness.apply(ending)[str(ending.key)].result is Result.APPLIED, "the workload is gone")
    harness.catch_up()
    assert take(harness, "db").result is Result.APPLIED
    assert_moved(harness, before, "db")


REQUESTS = (
    "get persistentvolumes",
    "patch persistentvolumes",
    "create persistentvolumeclaims",
    "delete persistentvolumeclaims",
    "patch persistentvolumeclaims",
)


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("kill", [(0, True), (1, False)])
def test_a_kill_between_the_steps_loses_nothing(
    harness: VolumeHarness, request_name: str, kill: tuple[int, bool]
) -> None:
    before = release(harness)
    stop_after(harness, request_name, *kill)
    assert take(harness).result in (Result.FAILED, Result.APPLIED)
    harness.server.heal()
    assert sorted(volume["metadata"]["name"] for volume in harness.server.objects("PersistentVolume")) == sorted(
        before.values()
    )
    harness.begin_anew()
    harness.until(lambda: take(harness).result is Result.APPLIED, "it is applied")
    assert_moved(harness, before)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_move_that_git_takes_back_amid_it_loses_nothing(harness: VolumeHarness, request_name: str) -> None:
    before = release(harness)
    stop_after(harness, request_name, 1, True)
    take(harness)
    harness.server.heal()
    harness.begin_anew()
    if "store" in harness.names("StatefulSet"):
        ending = end_step(make_user_step("store", replicas=REPLICAS))
        harness.until(lambda: harness.apply(ending)[str(ending.key)].result is Result.APPLIED, "it is gone")
    harness.until(lambda: take(harness, "db").result is Result.APPLIED, "it is applied")
    assert_moved(harness, before, "db")


def test_without_the_right_nothing_begins(harness: VolumeHarness) -> None:
    before = release(harness)
    harness.server.authorizer.forbid("persistentvolumes")
    outcome = take(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CLUSTER_FORBIDDEN)
    assert volumes_by_claim(harness) == before
