"""Volumes on disks whose files share blocks: btrfs, and images on XFS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ONE, VOLUME, Disk, disk_with, mounted_disk, refused
from tests.support.programs import only_root
from tests.support.scratch import OWN_MOUNTS

pytestmark = only_root("only root mounts disks")


def free(path: Path) -> int:
    os.sync()
    found = os.statvfs(path)
    return found.f_bfree * found.f_frsize


def write(path: Path, disk: Disk) -> None:
    """Write more than the first capacity of a volume."""
    with path.open("wb", buffering=0) as file:
        for _ in range(int(disk.capacity * 256) + 1):
            file.write(os.urandom(4 << 20))
            os.fsync(file.fileno())


def test_a_subvolume_is_limited_and_grows(tmp_path: Path) -> None:
    with disk_with("btrfs", tmp_path) as disk:
        path = disk.attach()
        with pytest.raises(OSError, match="quota"):
            write(path / "file", disk)
        assert disk.store.grow(VOLUME, disk.capacity * 2)
        (path / "other").write_bytes(os.urandom(1 << 20))
        assert disk.volume.enforced
        assert disk.volume.file_system == "btrfs"
        disk.snapshot("while-attached")
        (path / "file").unlink()
        disk.store.detach(VOLUME, ONE)
        disk.store.restore(VOLUME, "while-attached", "before")
        assert sorted(each.name for each in disk.attach().iterdir()) == ["file", "other"]
        with pytest.raises(OSError, match="quota"):
            write(path / "more", disk)


def test_btrfs_is_refused_on_another_file_system(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "root", "btrfs")
    assert any("no btrfs" in report for report in disk.reports)
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_UNAVAILABLE, "host.volumes is btrfs")
    assert disk.tree() == []


def test_snapshots_of_images_share_blocks_and_trim_frees_them(tmp_path: Path) -> None:
    with (
        mounted_disk(tmp_path / "disk", "xfs", "-m", "reflink=1") as folder,
        Disk(folder / "root", "image-ext4") as disk,
    ):
        path = disk.attach()
        (path / "file").write_bytes(os.urandom(4 << 20))
        before = free(folder)
        disk.snapshot("first")
        disk.store.detach(VOLUME, ONE)
        disk.store.restore(VOLUME, "first", "before")
        assert before - free(folder) < 1 << 20
        disk.store.delete_snapshot(VOLUME, "first")
        disk.store.delete_snapshot(VOLUME, "before")
        (disk.attach() / "file").unlink()
        os.sync()
        disk.store.trim(VOLUME)
        assert free(folder) - before > 3 << 20
        disk.store.detach(VOLUME, ONE)
        assert disk.leftovers() == []


def test_a_volume_keeps_its_backend_when_the_setting_changes(tmp_path: Path) -> None:
    with Disk(tmp_path / "root", "image-ext4") as disk:
        disk.fill(a="1")
        disk.setting = "directory"
        disk.reopen()
        assert disk.content() == {"a": "1"}
        assert disk.volume.backend == "image-ext4"
        disk.store.clear(VOLUME)
        assert disk.content() == {}
        assert disk.volume.backend == "image-ext4"


def test_auto_creates_an_image_with_the_file_system_of_the_manifest(tmp_path: Path) -> None:
    with Disk(tmp_path / "root", "image-ext4") as disk:
        disk.setting = "auto"
        disk.reopen()
        assert disk.reports == ()
        disk.attach()
        assert (disk.volume.backend, disk.volume.file_system) == ("image-ext4", "ext4")
        disk.store.detach(VOLUME, ONE)


def test_auto_creates_directories_where_mounts_would_be_invisible_to_containers(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.engines.host.volumes.kit import *\n"
        "disk = Disk(Path(sys.argv[1]), 'auto')\n"
        "disk.attach(); print(*disk.reports, disk.volume.backend, sep='\\n')"
    )
    command = [*OWN_MOUNTS, sys.executable, "-c", program, str(tmp_path / "root")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "directory"
    assert "mount namespace of its own" in done.stdout
