"""Files of volumes that cannot be read: the volume or snapshot that one describes waits, and all others are used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ALL, IMAGES, ONE, SET, VOLUME, Disk, disk_with, refused

OTHER_VOLUME = VolumeId(SET, 1)


@pytest.fixture(params=ALL[:2])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A store of directories, or of images, with two volumes and a snapshot of the first."""
    with disk_with(request.param, tmp_path) as disk:
        disk.fill(file="x")
        disk.snapshot("one")
        disk.attach("workload/shop/db replica db-1", OTHER_VOLUME)
        disk.store.detach(OTHER_VOLUME, "workload/shop/db replica db-1")
        yield disk


def garble(path: Path) -> None:
    path.write_bytes(b"\x00{")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [garble, empty])
@pytest.mark.parametrize("name", ["volume.json", "command.json", "lock"])
def test_a_volume_whose_file_cannot_be_read_waits_and_the_other_is_used(
    disk: Disk, name: str, spoil: Callable[[Path], None]
) -> None:
    file = disk.root / "volumes/shop/data/0.d" / name
    former = file.read_bytes() if file.exists() else None
    spoil(file)
    disk.reopen()
    assert [each for each in disk.reports if str(file) in each] or name != "volume.json"
    damaged, other = disk.store.list(SET)
    assert str(file) in damaged.damage
    assert ("restore" if name == "volume.json" else "remove") in damaged.damage
    assert (other.damage, other.index, disk.store.holders()) == ("", 1, {})
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_DAMAGED, str(file))
    disk.attach("workload/shop/db replica db-1", OTHER_VOLUME)
    disk.store.detach(OTHER_VOLUME, "workload/shop/db replica db-1")
    file.unlink()
    if former is not None:
        file.write_bytes(former)
    disk.reopen()
    assert disk.content() == {"file": "x"}


@pytest.mark.parametrize("spoil", [garble, empty])
def test_a_snapshot_that_cannot_be_read_is_the_only_one_that_is_not_used(
    disk: Disk, spoil: Callable[[Path], None]
) -> None:
    disk.snapshot("two")
    folder = disk.root / "volumes/shop/data/0.d/snapshots/one"
    spoil(folder / "snapshot.json")
    disk.reopen()
    volume = disk.store.list(SET)[0]
    assert (volume.damage, [each.name for each in volume.snapshots]) == ("", ["two"])
    [message] = volume.damaged_snapshots
    assert str(folder / "snapshot.json") in message
    assert (folder / "data").exists(), "it stays as it is"
    disk.store.restore(VOLUME, "two", "before")
    assert disk.content() == {"file": "x"}


@pytest.mark.parametrize("setting", IMAGES)
def test_the_mount_point_of_an_image_without_a_record_is_no_empty_volume(tmp_path: Path, setting: str) -> None:
    with disk_with(setting, tmp_path) as disk:
        disk.fill(file="x")
        record = disk.root / "volumes/shop/data/0.d/volume.json"
        former = record.read_bytes()
        record.unlink()
        disk.reopen()
        with pytest.raises(EngineError) as caught:
            disk.attach()
        refused(caught, Reason.VOLUME_DAMAGED, str(record), "it is missing")
        record.write_bytes(former)
        assert disk.content() == {"file": "x"}


@pytest.mark.parametrize("setting", IMAGES[:1])
def test_a_volume_that_is_being_attached_or_detached_is_not_lost(tmp_path: Path, setting: str) -> None:
    with disk_with(setting, tmp_path) as disk:
        disk.fill(file="x")
        ended = threading.Event()

        def attach_often() -> None:
            for _ in range(10):
                disk.attach()
                disk.store.detach(VOLUME, ONE)
            ended.set()

        worker = threading.Thread(target=attach_often)
        worker.start()
        seen = []
        while not ended.is_set():
            seen.append(disk.volume.lost)
        worker.join()
        assert not any(seen)
        assert len(seen) > 10
