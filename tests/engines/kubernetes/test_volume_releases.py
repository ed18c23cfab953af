"""Snapshots before a release on a cluster: no new version starts before the data of the old one are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.kubernetes.volumes import releases, snapshots
from reconciler.engines.protocol import Outcome, Result
from reconciler.planning.plan import Step
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import SPACE
from tests.engines.kubernetes.volume_kit import VolumeHarness, make_user_step, volumes_on_fake

TAG = {"reconciler/snapshot-on": "new-version"}


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VolumeHarness]:
    monkeypatch.setattr(snapshots, "PAUSE", 0.01)
    with volumes_on_fake(tmp_path) as harness:
        harness.apply_data(snapshots={"retentionDuration": "7d"})
        harness.apply(make_release(1))
        harness.until(lambda: harness.see_volume().current_size, "the volume is seen")
        harness.catch_up()
        assert harness.snapshots() == []
        yield harness


def make_release(version: int) -> Step:
    """The step of a version of ``web``."""
    return make_user_step(version=version, tags={**TAG, "release": str(version)})


def release(harness: VolumeHarness, version: int) -> Outcome:
    """Apply a version."""
    [outcome] = harness.apply(make_release(version)).values()
    harness.catch_up()
    return outcome


def read_version(harness: VolumeHarness) -> str:
    """The version that the cluster has."""
    marks = harness.server.object("StatefulSet", "web", SPACE)["metadata"]["annotations"]
    return str(marks["reconciler.dev/version"])


def test_a_new_version_waits_for_the_snapshot(harness: VolumeHarness) -> None:
    asked = make_release(2)

    async def perform() -> Outcome:
        step = msgspec.structs.replace(asked, location="here")
        performing = asyncio.create_task(harness.engine.perform(step))
        while not harness.list_snapshots():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert (performing.done(), read_version(harness)) == (False, "1")
        [snapshot] = harness.list_snapshots()
        harness.set_status(snapshot, {"readyToUse": False, "creationTime": "2026-11-29T00:00:00Z"})
        return await performing

    assert harness.do(perform()).result is Result.APPLIED
    assert (read_version(harness), harness.snapshots()) == ("2", ["before-web-00002"])


def test_a_snapshot_that_fails_holds_the_version_back_until_it_succeeds(
    harness: VolumeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "RELEASE_WAIT", releases.RELEASE_WAIT._replace(tries=3))
    outcome = release(harness, 2)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.SNAPSHOT_FAILED)
    assert "must precede the new version, is not taken yet" in outcome.message
    harness.fail_snapshots("the backend is full")
    outcome = release(harness, 2)
    assert "the backend is full" in outcome.message
    assert read_version(harness) == "1"
    [snapshot] = harness.list_snapshots()
    harness.set_status(snapshot, {"readyToUse": True, "error": None})
    harness.catch_up()
    assert release(harness, 2).result is Result.APPLIED
    assert (read_version(harness), harness.snapshots()) == ("2", ["before-web-00002"])
    assert release(harness, 2).result is Result.APPLIED
    harness.begin_anew()
    assert release(harness, 2).result is Result.APPLIED
    assert harness.snapshots() == ["before-web-00002"]


def test_without_the_kind_the_tag_is_not_enforced(tmp_path: Path) -> None:
    with volumes_on_fake(tmp_path, "PodMetrics") as harness:
        harness.apply_data()
        harness.apply(make_release(1))
        assert release(harness, 2).result is Result.APPLIED
        [seen] = [seen for seen in harness.see().values() if seen.key.name == "web"]
        messages = [condition.message for condition in engine_conditions(seen.state)]
        assert any("reconciler/snapshot-on is not applied" in message for message in messages)
