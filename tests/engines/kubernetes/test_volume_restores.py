"""What a restore on a cluster replaces: it is kept as a snapshot, and in service where the restore is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.kubernetes.volumes import restores, snapshots
from reconciler.engines.protocol import Result
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import SPACE
from tests.engines.kubernetes.volume_kit import (
    CLAIM,
    DATA,
    VolumeHarness,
    end_step,
    make_user_step,
    make_volume_step,
    stop_after,
    volumes_on_fake,
)

WHERE = {"location": "here", "volumeIndex": 0, "snapshotName": "nightly"}


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VolumeHarness]:
    for module in (restores, snapshots):
        monkeypatch.setattr(module, "PAUSE", 0.02)
    with volumes_on_fake(tmp_path) as harness:
        harness.server.controllers.kubelet.takes_snapshots = True
        harness.apply_data()
        harness.apply_user()
        perform(harness, "createVolumeSnapshot", "take")
        harness.catch_up()
        yield harness


def perform(harness: VolumeHarness, command: str, command_id: str) -> None:
    fields = WHERE if command != "deleteVolume" else {"location": "here", "volumeIndex": 0}
    harness.do(harness.engine.command(DATA, command, fields, command_id))
    harness.catch_up()


def read_claim(harness: VolumeHarness) -> dict[str, Any]:
    claim: dict[str, Any] = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)
    return claim


def list_policies(harness: VolumeHarness) -> dict[str, str]:
    """The reclaim policy of each PersistentVolume."""
    volumes = harness.server.objects("PersistentVolume")
    return {value["metadata"]["name"]: value["spec"]["persistentVolumeReclaimPolicy"] for value in volumes}


def assert_nothing_is_lost(harness: VolumeHarness, volume: str) -> None:
    """Its data are in service as before."""
    claim = read_claim(harness)
    assert (claim["spec"]["volumeName"], claim["status"]["phase"]) == (volume, "Bound")
    assert "dataSource" not in claim["spec"]
    assert list_policies(harness) == {volume: "Delete"}
    assert harness.names("StatefulSet") == ["web"]
    harness.until(lambda: harness.names("Pod") == ["web-0"], "the replica runs")


def test_a_snapshot_of_what_is_replaced_stays_and_its_volume_goes_once_the_new_one_is_there(
    harness: VolumeHarness,
) -> None:
    former = read_claim(harness)["spec"]["volumeName"]
    perform(harness, "restoreVolume", "restore")
    [_, safety] = harness.see_volume().volume_snapshots
    assert safety.name.startswith("pre-restore-")
    assert safety.tags == {"reconciler/before-restore": "nightly"}
    present = read_claim(harness)["spec"]["volumeName"]
    assert list_policies(harness) == {former: "Retain", present: "Delete"}
    harness.check()
    harness.catch_up()
    assert list_policies(harness) == {present: "Delete"}
    harness.check()
    perform(harness, "restoreVolume", "restore")
    assert read_claim(harness)["spec"]["volumeName"] == present, "a command that is repeated restores nothing twice"


def test_a_restore_that_a_quota_refuses_leaves_the_data_in_service(harness: VolumeHarness) -> None:
    former = read_claim(harness)["spec"]["volumeName"]
    [nightly] = harness.list_snapshots()
    harness.set_status(nightly, {**nightly["status"], "restoreSize": "20Gi"})
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": SPACE}}
    harness.server.create({**quota, "spec": {"hard": {"requests.storage": "15Gi", "persistentvolumeclaims": "1"}}})
    harness.catch_up()
    with pytest.raises(EngineError) as caught:
        perform(harness, "restoreVolume", "restore")
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    harness.catch_up()
    assert_nothing_is_lost(harness, former)


def test_a_claim_that_a_quota_still_counts_refuses_nothing(harness: VolumeHarness) -> None:
    harness.server.fail("create persistentvolumeclaims", 403, 2, message="exceeded quota: small")
    perform(harness, "restoreVolume", "restore")
    assert read_claim(harness)["spec"]["dataSource"]["kind"] == "VolumeSnapshot"


def test_what_a_webhook_refuses_costs_no_claim(harness: VolumeHarness) -> None:
    claim = read_claim(harness)
    harness.server.admission.deny("PersistentVolumeClaim", "not in this namespace")
    with pytest.raises(EngineError) as caught:
        perform(harness, "restoreVolume", "restore")
    assert caught.value.reason is Reason.ADMISSION_REFUSED
    assert read_claim(harness)["metadata"]["uid"] == claim["metadata"]["uid"]


def test_without_a_snapshot_of_what_it_replaces_nothing_is_restored(harness: VolumeHarness) -> None:
    harness.server.controllers.kubelet.takes_snapshots = False
    claim = read_claim(harness)

    async def restore() -> None:
        restoring = asyncio.create_task(harness.engine.command(DATA, "restoreVolume", WHERE, "restore"))
        while len(harness.list_snapshots()) < 2:
            await asyncio.sleep(0.01)
        [safety] = [value for value in harness.list_snapshots() if not value.get("status")]
        harness.set_status(safety, {"readyToUse": False, "error": {"message": "the disk is full"}})
        await restoring

    with pytest.raises(EngineError, match="which must precede the restore, failed: the disk is full"):
        harness.do(restore())
    assert read_claim(harness)["metadata"]["uid"] == claim["metadata"]["uid"]


def test_a_volume_that_a_kill_left_without_a_claim_goes_after_the_restore(harness: VolumeHarness) -> None:
    former = read_claim(harness)["spec"]["volumeName"]
    commands = harness.engine._volumes
    chosen = commands._find_snapshot(DATA, 0, "nightly")
    target = commands.snapshots.claims_of(DATA)[0].id
    assert harness.do(commands.replaced.secure(DATA, target, chosen, "restore")) == former
    harness.server.delete("StatefulSet", "web", SPACE)
    harness.server.delete("PersistentVolumeClaim", CLAIM, SPACE)
    harness.until(lambda: harness.names("PersistentVolumeClaim") == [], "the claim is gone, as after a kill")
    harness.catch_up()
    harness.begin_anew()
    perform(harness, "restoreVolume", "restore")
    assert read_claim(harness)["spec"]["dataSource"]["name"] == chosen.object_name
    assert former in list_policies(harness)
    harness.check()
    harness.catch_up()
    assert list_policies(harness) == {read_claim(harness)["spec"]["volumeName"]: "Delete"}


def test_the_data_of_a_restored_volume_can_be_deleted(harness: VolumeHarness) -> None:
    perform(harness, "restoreVolume", "restore")
    perform(harness, "deleteVolume", "delete")
    claim = read_claim(harness)
    assert "dataSource" not in claim["spec"]
    assert list_policies(harness) == {claim["spec"]["volumeName"]: "Delete"}


def restore_in_vain(harness: VolumeHarness) -> str:
    """Begin a restore whose claim gets no volume; the volume that it replaces."""
    former: str = read_claim(harness)["spec"]["volumeName"]
    harness.server.controllers.kubelet.restores_snapshots = False
    perform(harness, "restoreVolume", "restore")
    harness.check()
    return former


def fail_provisioning(harness: VolumeHarness, message: str) -> None:
    claim = read_claim(harness)
    about = {"kind": "PersistentVolumeClaim", "name": CLAIM, "namespace": SPACE, "uid": claim["metadata"]["uid"]}
    event = {"involvedObject": about, "reason": "ProvisioningFailed", "message": message, "type": "Warning"}
    metadata = {"name": "failed", "namespace": SPACE}
    harness.server.create({"apiVersion": "v1", "kind": "Event", "metadata": metadata, **event})


def wait_in_vain(harness: VolumeHarness, minutes: int) -> bool:
    """Whether the claim of the restore is still there after ``minutes`` more."""
    uid = read_claim(harness)["metadata"]["uid"]
    harness.pass_time(60 * minutes)
    harness.check()
    return bool(read_claim(harness)["metadata"]["uid"] == uid)


def test_a_restore_that_the_driver_refuses_is_undone_after_a_while(harness: VolumeHarness) -> None:
    former = restore_in_vain(harness)
    fail_provisioning(harness, "the snapshot is of another region")
    assert wait_in_vain(harness, 9)
    assert not wait_in_vain(harness, 2)
    harness.catch_up()
    assert_nothing_is_lost(harness, former)
    [event] = [event for event in harness.events() if event.startswith("VolumeCheckFailed")]
    assert "the restore of nightly was undone, and the volume from before is in service" in event
    assert event.endswith("got none within 11 min: the snapshot is of another region")
    harness.begin_anew()
    [condition] = engine_conditions(harness.see_data().encode())
    assert (condition.reason, condition.message) == (
        Reason.VOLUME_CHECK_FAILED,
        event.replace("VolumeCheckFailed: ", "volume 0: "),
    )
    harness.pass_time(24 * 3600 + 60)
    harness.check()
    harness.catch_up()
    assert not engine_conditions(harness.see_data().encode())


def test_a_restore_without_a_word_has_an_hour(harness: VolumeHarness) -> None:
    former = restore_in_vain(harness)
    assert wait_in_vain(harness, 59)
    assert not wait_in_vain(harness, 2)
    harness.catch_up()
    assert_nothing_is_lost(harness, former)
    harness.server.controllers.kubelet.restores_snapshots = True
    perform(harness, "restoreVolume", "again")
    assert read_claim(harness)["spec"]["dataSource"]["kind"] == "VolumeSnapshot"
    assert not engine_conditions(harness.see_data().encode())


def test_a_restore_that_waits_for_a_pod_has_all_the_time(harness: VolumeHarness) -> None:
    """With such a class no volume is made for a workload that is suspended."""
    metadata = {"name": read_claim(harness)["spec"]["storageClassName"]}
    waits = {"provisioner": "example.com/csi", "volumeBindingMode": "WaitForFirstConsumer"}
    harness.server.create({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, **waits})
    restore_in_vain(harness)
    assert wait_in_vain(harness, 300)
    annotations = {"volume.kubernetes.io/selected-node": "node-1"}
    harness.server.patch("PersistentVolumeClaim", CLAIM, SPACE, {"metadata": {"annotations": annotations}})
    harness.check()
    assert wait_in_vain(harness, 59)
    assert not wait_in_vain(harness, 2)


UNDO_WRITES = (
    "patch configmaps",
    "delete statefulsets.apps",
    "delete persistentvolumeclaims",
    "delete pods",
    "create persistentvolumeclaims",
    "patch persistentvolumes",
    "patch persistentvolumes",
    "patch configmaps",
    "patch statefulsets.apps",
)
"""What undoing a restore writes, in order."""


def fail_in_vain(harness: VolumeHarness) -> str:
    """Let a restore get no volume until the check that undoes it is the next; the volume that it replaces."""
    former = restore_in_vain(harness)
    fail_provisioning(harness, "the snapshot is of another region")
    assert wait_in_vain(harness, 9)
    harness.pass_time(120)
    harness.server.clear_requests()
    return former


def assert_undone(harness: VolumeHarness, former: str) -> None:
    """It is as after an undo without a kill, and nothing of that is left."""
    assert_nothing_is_lost(harness, former)
    [condition] = engine_conditions(harness.see_data().encode())
    assert "the restore of nightly was undone, and the volume from before is in service" in condition.message
    [volume] = harness.server.objects("PersistentVolume")
    assert "reconciler.dev/reclaim-policy" not in (volume["metadata"].get("annotations") or {})
    parent = harness.server.object("ConfigMap", "reconciler", SPACE)
    assert not any(name.startswith("undo.") for name in parent["metadata"]["annotations"])
    assert harness.see()["workload/shop/web"].digest


def test_what_an_undo_writes(harness: VolumeHarness) -> None:
    """A further request needs a further kill below."""
    former = fail_in_vain(harness)
    harness.check()
    writes = [
        f"{entry.verb} {entry.resource}"
        for entry in harness.server.requests
        if entry.verb not in ("get", "list", "watch") and "-trial-" not in entry.path
    ]
    assert writes == [*UNDO_WRITES, "patch statefulsets.apps"]
    harness.catch_up()
    assert_undone(harness, former)


@pytest.mark.parametrize("begins", ["watcher", "run"])
@pytest.mark.parametrize("number", range(len(UNDO_WRITES) + 1))
def test_a_kill_amid_an_undo_changes_nothing_of_its_end(harness: VolumeHarness, number: int, begins: str) -> None:
    """Behind the request ``number``, or before the first: the next daemon ends it, whatever it does first."""
    former = fail_in_vain(harness)
    name = UNDO_WRITES[max(number - 1, 0)]
    stop_after(harness, name, UNDO_WRITES[: number - 1].count(name) if number else 0, number > 0)
    harness.check()
    harness.server.heal()
    harness.begin_anew()
    if begins == "run" and number:
        harness.apply_user()
    harness.check()
    if number == 0:
        assert wait_in_vain(harness, 9)
        assert not wait_in_vain(harness, 2)
    harness.catch_up()
    harness.apply_user()
    harness.until(lambda: harness.see()["workload/shop/web"].health.is_good, "the workload is well")
    harness.catch_up()
    assert_undone(harness, former)


@pytest.mark.parametrize("number", [3, 4, 5, 7])
def test_a_volume_set_that_is_deleted_amid_an_undo_has_a_final_snapshot_of_its_data(
    harness: VolumeHarness, number: int
) -> None:
    former = fail_in_vain(harness)
    name = UNDO_WRITES[number - 1]
    stop_after(harness, name, UNDO_WRITES[: number - 1].count(name), True)
    harness.check()
    harness.server.heal()
    harness.begin_anew()
    steps = end_step(make_user_step()), end_step(make_volume_step())
    for step in steps:
        harness.until(lambda step=step: harness.apply(step)[str(step.key)].result is Result.APPLIED, f"{step.key}")
    assert former not in list_policies(harness)
    [final] = [item for item in harness.list_snapshots() if "reconciler.dev/final" in item["metadata"]["annotations"]]
    assert final["status"]["readyToUse"]


def test_a_claim_of_others_amid_an_undo_is_left_to_people(harness: VolumeHarness) -> None:
    former = fail_in_vain(harness)
    stop_after(harness, "create persistentvolumeclaims", 0, False)
    harness.check()
    harness.server.heal()
    harness.begin_anew()
    metadata = {"name": CLAIM, "namespace": SPACE}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    harness.server.create(claim)
    harness.until(lambda: read_claim(harness).get("status", {}).get("phase") == "Bound", "it has a volume")
    other = read_claim(harness)["spec"]["volumeName"]
    harness.check()
    [condition] = engine_conditions(harness.see_data().encode())
    assert "delete the claim to have that back, or remove the annotation undo.reconciler.dev/" in condition.message
    assert list_policies(harness) == {former: "Retain", other: "Delete"}
    harness.server.delete("PersistentVolumeClaim", CLAIM, SPACE)
    harness.until(lambda: harness.names("PersistentVolumeClaim") == [], "it is gone")
    harness.pass_time(120)
    harness.check()
    harness.catch_up()
    assert_undone(harness, former)


FOREIGN = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "theirs", "annotations": {"reconciler.dev/reclaim-policy": "Delete"}},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {"namespace": "others", "name": CLAIM, "uid": "gone"},
        "hostPath": {"path": "/theirs"},
        "persistentVolumeReclaimPolicy": "Retain",
    },
}
"""A volume of another namespace, which is retained while it moves."""


def test_an_annotation_reaches_no_volume_of_others(harness: VolumeHarness) -> None:
    """Who may write in the namespace names volumes in annotations; what they say of other namespaces has no effect."""
    theirs = harness.server.create(FOREIGN)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    claims = [{"metadata": {"name": CLAIM, "namespace": place}, "spec": spec} for place in (SPACE, "others")]
    claims.append({"metadata": {"name": "other-web-0", "namespace": SPACE}, "spec": spec})
    undos = [{"volumeset": "data", "uid": "gone", "volume": "theirs", "former": former} for former in claims]
    texts = [*map(json.dumps, undos), "no JSON", '{"volumeset": "data", "uid": "", "volume": "", "former": {}}']
    marks = {f"undo.reconciler.dev/{number}": text for number, text in enumerate(texts)}
    harness.server.patch("ConfigMap", "reconciler", SPACE, {"metadata": {"annotations": marks}})
    replaces = {"metadata": {"annotations": {"reconciler.dev/replaces": "theirs"}}}
    harness.server.patch("PersistentVolumeClaim", CLAIM, SPACE, replaces)
    former = read_claim(harness)
    harness.check()
    harness.check()
    assert harness.server.object("PersistentVolume", "theirs")["spec"] == theirs["spec"]
    assert harness.names("PersistentVolumeClaim") == [CLAIM]
    assert harness.names("PersistentVolumeClaim", "others") == []
    assert read_claim(harness)["metadata"]["uid"] == former["metadata"]["uid"]
