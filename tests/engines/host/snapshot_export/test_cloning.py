"""A snapshot becomes one of another volume set, with the same data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.snapshot_export.cloning import CLONED_FROM, clone_snapshot
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ALL, NO_RESERVE, ONE, OTHER, VOLUME, Disk, disk_with, refused

PREVIEW = VolumeId(Key.parse("volumeset/preview/data"), 0)


@pytest.fixture(params=ALL)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A volume in use with a snapshot of a file, which has changed since."""
    with disk_with(request.param, tmp_path) as disk:
        disk.fill(file="as of the snapshot")
        disk.store.take_snapshot(VOLUME, "nightly", "2030-01-01T00:00:00Z", {"reconciler/schedule": "0 3 * * *"})
        disk.fill(file="changed since")
        disk.attach()
        yield disk
        disk.store.detach(PREVIEW, OTHER)


def test_a_clone_is_restored_to_another_volume_set(disk: Disk) -> None:
    clone_snapshot(disk.root, VOLUME, "nightly", PREVIEW, NO_RESERVE)
    [volume] = disk.store.list(PREVIEW.volumeset)
    [clone] = volume.snapshots
    assert (clone.name, clone.expires, clone.tags) == ("nightly", "", {CLONED_FROM: "volumeset/shop/data/0/nightly"})
    assert clone.checksum == disk.volume.snapshots[0].checksum
    disk.store.restore(PREVIEW, "nightly", "before")
    path = disk.attach(OTHER, PREVIEW)
    assert (path / "file").read_text() == "as of the snapshot"
    (path / "file").write_text("changed by the preview")
    disk.store.detach(PREVIEW, OTHER)
    disk.store.detach(VOLUME, ONE)
    assert disk.content() == {"file": "changed since"}
    disk.store.restore(VOLUME, "nightly", "before")
    assert disk.content() == {"file": "as of the snapshot"}


@pytest.mark.parametrize("disk", [ALL[0]], indirect=True)
def test_a_clone_that_cannot_be_is_refused_and_changes_nothing(disk: Disk) -> None:
    before = disk.tree()
    for name, reserve, reason in (
        ("none", NO_RESERVE, Reason.SNAPSHOT_NOT_FOUND),
        ("nightly", Reserve(100, 0), Reason.HOST_DISK_LOW),
    ):
        with pytest.raises(EngineError) as caught:
            clone_snapshot(disk.root, VOLUME, name, PREVIEW, reserve)
        refused(caught, reason)
    assert disk.tree() == before
    clone_snapshot(disk.root, VOLUME, "nightly", PREVIEW, NO_RESERVE)
    with pytest.raises(EngineError) as caught:
        clone_snapshot(disk.root, VOLUME, "nightly", PREVIEW, NO_RESERVE)
    refused(caught, Reason.SNAPSHOT_EXISTS, "volume 0 of volumeset/preview/data")
    data = disk.root / "volumes/shop/data/0.d/snapshots/nightly/data/file"
    data.write_bytes(os.urandom(5))
    with pytest.raises(EngineError) as caught:
        clone_snapshot(disk.root, VOLUME, "nightly", VolumeId(PREVIEW.volumeset, 1), NO_RESERVE)
    refused(caught, Reason.SNAPSHOT_DAMAGED)
