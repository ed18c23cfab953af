"""Volumes on a cluster: what a command replaces is not made anew by a step meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.kubernetes.client.objects import STATEFUL_SET, VOLUME_SNAPSHOT
from reconciler.engines.protocol import Result
from reconciler.model.key import Key, Kind
from reconciler.planning.plan import Step
from tests.engines.kubernetes.engine_kit import SPACE, WEB, ClusterHarness, change_body, engine_on_fake, make_step
from tests.support.plans import step

DATA = Key(Kind.VOLUMESET, SPACE, "data")
CLAIM = "data-web-0"
WHERE = {"location": "here", "volumeIndex": 0, "snapshotName": "nightly"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        harness.server.install("VolumeSnapshot")
        harness.server.controllers.kubelet.takes_snapshots = True
        harness.begin_anew()
        yield harness


def start_with_volume(harness: ClusterHarness) -> Step:
    """Apply a workload with a volume; returns its step."""
    volumes = step(
        str(DATA), body={"kind": "volumeset", "name": "data", "spec": {"initialCapacity": 10}}, engine="kubernetes"
    )
    body = change_body(volumes=[{"uri": "platform://volumeset/data", "path": "/data"}])
    body["spec"]["type"] = "stateful"
    body["spec"]["defaultOptions"]["autoscaling"] |= {"minScale": 1, "maxScale": 1}
    web = make_step(body)
    for needed in (volumes, web):
        assert {outcome.result for outcome in harness.apply(needed).values()} == {Result.APPLIED}
    harness.until(lambda: CLAIM in harness.names("PersistentVolumeClaim"), "the claim exists")
    harness.catch_up()
    return web


def test_a_snapshot_is_known_after_a_restart_of_the_daemon(harness: ClusterHarness) -> None:
    start_with_volume(harness)
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", WHERE, "one"))
    [snapshot] = harness.names("VolumeSnapshot")
    harness.server.patch("VolumeSnapshot", snapshot, SPACE, {"status": {"readyToUse": True}}, subresource="status")
    harness.catch_up()
    harness.begin_anew()
    [item] = harness.engine.list_mirrored(VOLUME_SNAPSHOT)
    assert (item.id.name, item.decode()["status"]["readyToUse"]) == (snapshot, True)
    harness.do(harness.engine.command(DATA, "deleteVolumeSnapshot", WHERE, "two"))
    harness.until(lambda: not list(harness.engine.list_mirrored(VOLUME_SNAPSHOT)), "its end is seen")


def test_a_step_makes_no_empty_volume_while_one_is_restored(harness: ClusterHarness) -> None:
    web, where = start_with_volume(harness), WHERE
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "one"))
    before = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)["metadata"]["uid"]
    harness.do(restore_amid_steps(harness, where, web))
    claim = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)
    assert claim["metadata"]["uid"] != before
    assert claim["spec"]["dataSource"]["kind"] == "VolumeSnapshot"
    harness.until(lambda: harness.apply(web)[WEB].result is Result.APPLIED, "the workload is applied")
    assert harness.names("StatefulSet") == ["web"]
    assert harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)["metadata"]["uid"] == claim["metadata"]["uid"]


def test_a_volume_that_is_replaced_is_no_drift(harness: ClusterHarness) -> None:
    web = start_with_volume(harness)
    where = {"location": "here", "volumeIndex": 0}
    digests = harness.do(watch_replacement(harness, where))
    assert set(digests) == {web.digest}
    harness.catch_up()
    assert harness.see_web().digest == web.digest
    harness.server.clear_requests()
    harness.apply(web)
    assert harness.writes() == []


async def watch_replacement(harness: ClusterHarness, where: dict[str, object]) -> list[str]:
    """The digests of the workload that are observed while a command replaces a volume; "" for none."""
    harness.server.delay("create persistentvolumeclaims", 0.3)
    replacing = asyncio.create_task(harness.engine.command(DATA, "deleteVolume", where, "two"))
    digests = []
    while not replacing.done():
        seen = await harness.engine.observe_some([Key.parse(WEB)])
        digests.append(next((one.digest for one in seen if str(one.key) == WEB), ""))
        await asyncio.sleep(0.01)
    await replacing
    return digests


def test_a_restore_goes_on_after_a_kill_between_its_steps(harness: ClusterHarness) -> None:
    start_with_volume(harness)
    where = {"location": "here", "volumeIndex": 0, "snapshotName": "nightly"}
    harness.do(harness.engine.command(DATA, "createVolumeSnapshot", where, "one"))
    harness.server.delete("StatefulSet", "web", SPACE)
    harness.server.delete("PersistentVolumeClaim", CLAIM, SPACE)
    harness.until(lambda: harness.names("PersistentVolumeClaim") == [], "the claim is gone, as after a kill")
    harness.begin_anew()
    harness.do(harness.engine.command(DATA, "restoreVolume", where, "two"))
    claim = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)
    assert claim["spec"]["dataSource"]["kind"] == "VolumeSnapshot"
    assert harness.names("StatefulSet") == ["web"]


async def restore_amid_steps(harness: ClusterHarness, where: dict[str, object], web: Step) -> None:
    harness.server.delay("create persistentvolumeclaims", 0.5)
    restoring = asyncio.create_task(harness.engine.command(DATA, "restoreVolume", where, "two"))
    while not harness.server.requests_of("create", "persistentvolumeclaims"):
        await asyncio.sleep(0.01)
    while has_stateful_set(harness, web.key):
        await asyncio.sleep(0.01)
    performing = asyncio.create_task(harness.engine.perform(web))
    await restoring
    await performing


def has_stateful_set(harness: ClusterHarness, key: Key) -> bool:
    """Whether the engine sees the StatefulSet of a workload."""
    return any(item.id.kind is STATEFUL_SET for item in harness.engine._mirror.of_key(key))
