"""A disk with btrfs: directories are removed, and subvolumes that programs make in volumes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ONE, SET, VOLUME, Disk, disk_with, mounted_disk, refused
from tests.support.programs import only_root

pytestmark = only_root("only root mounts images")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A volume with a snapshot, and two subvolumes in it, one in the other."""
    with disk_with("btrfs", tmp_path) as disk:
        disk.fill(a="1")
        disk.snapshot("first")
        path = disk.attach()
        for name in ("outer", "outer/inner"):
            subprocess.run(["btrfs", "subvolume", "create", path / name], check=True, capture_output=True)
            (path / name / "file").write_text("x")
        disk.store.detach(VOLUME, ONE)
        yield disk


def test_they_are_deleted_with_the_volume(disk: Disk) -> None:
    disk.store.clear(VOLUME)
    assert disk.content() == {}
    assert disk.names() == ["first"]


def test_they_are_part_of_a_final_snapshot_and_deleted_with_it(disk: Disk) -> None:
    disk.store.drop(SET, keep_final_snapshot=True)
    [final] = disk.store.list_deleted()
    assert len(list(disk.root.rglob("outer/inner/file"))) == 1
    disk.store.delete_final_snapshot(final)
    assert disk.tree() == []


def test_a_snapshot_that_would_lack_them_is_refused(disk: Disk) -> None:
    for act in (lambda: disk.snapshot("second"), lambda: disk.store.restore(VOLUME, "first", "before")):
        with pytest.raises(EngineError) as caught:
            act()
        refused(caught, Reason.INVALID_COMMAND, "contains 1 subvolumes of btrfs", "make directories of them")
    assert disk.names() == ["first"]
    assert (disk.root / "volumes/shop/data/0/outer/inner/file").read_text() == "x"


def test_directories_in_directories_are_removed(tmp_path: Path) -> None:
    """An open directory of btrfs does not list what came into it since."""
    with mounted_disk(tmp_path / "disk", "btrfs") as disk:
        (disk / "top/a/b/c").mkdir(parents=True)
        (disk / "top/a/b/file").write_text("x")
        remove_tree(disk / "top")
        assert list(disk.iterdir()) == []
