"""A disk that is full, or has only its reserve left: volumes stay as they are, and deletes make room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ALL, IMAGES, ONE, SET, VOLUME, Disk, refused
from tests.support.programs import fill, small_disk

OTHER_VOLUME = VolumeId(SET, 1)
FULL = (Reason.DISK_FULL, Reason.HOST_DISK_LOW)


@pytest.fixture(params=ALL[:2])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A store on a disk of its own; its volume has a snapshot ``first``."""
    with small_disk(tmp_path / "disk", "size=24m") as place, Disk(place / "root", request.param) as disk:
        disk.fill(a="1" * 100_000)
        disk.snapshot("first")
        disk.fill(a="2")
        yield disk
        assert disk.leftovers() == []


def refused_when_full(disk: Disk, act: Callable[[], object]) -> None:
    """Perform ``act`` on the full disk: it is refused, and the store is as before."""
    filler = fill(disk.root.parent)
    before = disk.tree()
    with pytest.raises(EngineError) as caught:
        act()
    assert caught.value.reason in FULL, caught.value
    assert caught.value.retry
    assert disk.tree() == before
    filler.unlink()


def test_a_full_disk_leaves_volumes_as_they_are(disk: Disk) -> None:
    refused_when_full(disk, lambda: disk.snapshot("second"))
    refused_when_full(disk, lambda: disk.attach(volume=OTHER_VOLUME))
    refused_when_full(disk, lambda: disk.store.restore(VOLUME, "first", "before"))
    assert disk.content() == {"a": "2"}
    disk.store.restore(VOLUME, "first", "before")
    assert disk.content() == {"a": "1" * 100_000}
    assert disk.names() == ["before", "first"]


def test_deletes_make_room_on_a_full_disk(disk: Disk) -> None:
    fill(disk.root.parent)
    disk.store.delete_snapshot(VOLUME, "first")
    fill(disk.root.parent)
    disk.store.clear(VOLUME)
    assert (disk.names(), disk.volume.state) == ([], "deleted")
    fill(disk.root.parent)
    disk.store.drop(SET, keep_final_snapshot=True)
    assert disk.tree() == []


@pytest.mark.parametrize("setting", IMAGES[:1])
def test_a_full_disk_that_stops_the_file_system_of_an_image_is_noticed(tmp_path: Path, setting: str) -> None:
    with small_disk(tmp_path / "disk", "size=24m") as folder, Disk(folder / "root", setting) as disk:
        # Blocks that are all zeros take no room after some ways of copying, and need it later.
        disk.fill(a="1")
        subprocess.run(["fallocate", "--dig-holes", disk.root / "volumes/shop/data/0.d/image"], check=True)
        path = disk.attach()
        filler = fill(folder)
        with pytest.raises(OSError, match="Read-only"):
            write_until_stopped(path)
        assert disk.volume.lost
        filler.unlink()
        disk.attach()
        assert not disk.volume.lost
        assert (path / "a").read_text() == "1"
        disk.store.detach(VOLUME, ONE)


def write_until_stopped(path: Path) -> None:
    """Write files until a write fails for another reason than the full disk. Raises OSError."""
    for number in range(1000):
        try:
            (path / str(number)).write_bytes(os.urandom(5000))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
        subprocess.run(["sync", "-f", path], check=False, capture_output=True)


@pytest.mark.parametrize("setting", IMAGES[:1])
def test_images_give_room_back_before_a_snapshot_is_refused(tmp_path: Path, setting: str) -> None:
    with small_disk(tmp_path / "disk", "size=40m") as folder, Disk(folder / "root", setting) as disk:
        disk.capacity = 16 / 1024
        disk.spec = VolumeSpec(disk.capacity)
        path = disk.attach()
        (path / "big").write_bytes(os.urandom(10 << 20))
        subprocess.run(["sync", "-f", path], check=True)
        (path / "big").unlink()
        subprocess.run(["sync", "-f", path], check=True)
        (folder / "other").write_bytes(bytes(22 << 20))
        image = disk.root / "volumes/shop/data/0.d/image"
        full = image.stat().st_blocks
        disk.snapshot("first")
        assert image.stat().st_blocks < full - (8 << 20) // 512
        disk.store.detach(VOLUME, ONE)


@pytest.mark.parametrize("setting", IMAGES[:1])
def test_the_reserve_is_left_free_and_the_message_names_what_makes_room(tmp_path: Path, setting: str) -> None:
    with Disk(tmp_path / "root", setting) as disk:
        disk.fill(a="1")
        disk.snapshot("nightly")
        former = VolumeId(Key.parse("volumeset/shop/former"), 0)
        disk.attach(volume=former)
        disk.store.detach(former, ONE)
        disk.store.drop(former.volumeset, keep_final_snapshot=True)
        disk.reserve = Reserve(100, 0)
        disk.reopen()
        for act in (lambda: disk.snapshot("second"), lambda: disk.store.grow(VOLUME, disk.capacity * 2)):
            with pytest.raises(EngineError) as caught:
                act()
            refused(
                caught,
                Reason.HOST_DISK_LOW,
                "GiB are reserved",
                "MiB",
                "deleting the snapshot nightly of volume 0 of volumeset/shop/data frees up to",
                "deleting the final snapshot 0-",
                "of volumeset/shop/former",
            )
        assert (disk.names(), disk.volume.capacity) == (["nightly"], disk.capacity)
        assert disk.content() == {"a": "1"}
