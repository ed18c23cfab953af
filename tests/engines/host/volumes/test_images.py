"""Volumes that are images: capacity is a limit, snapshots freeze, mounts get lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from queue import Queue

import pytest

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes import kernel
from reconciler.engines.host.volumes.freeze import freeze_file_system
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import IMAGES, ONE, OTHER, SET, VOLUME, Disk, refused
from tests.support.programs import only_root
from tests.support.sandbox import eventually
from tests.support.waiting import PATIENCE


@pytest.fixture(params=IMAGES)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A store with each kind of image."""
    with Disk(tmp_path / "root", request.param) as disk:
        yield disk
        disk.store.detach(VOLUME, ONE)
        assert disk.leftovers() == []


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def test_capacity_is_a_limit(disk: Disk) -> None:
    path = disk.attach()
    assert path.is_mount()
    assert list(path.iterdir()) == []
    with pytest.raises(OSError, match="No space left"), (path / "file").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, int(disk.capacity * (1 << 30)))
    assert disk.volume.enforced
    assert disk.volume.file_system == disk.setting.removeprefix("image-")


def test_the_directory_of_an_image_that_is_not_mounted_is_closed(disk: Disk) -> None:
    path = disk.store.attach(VOLUME, disk.spec, ONE, Owner(65534, 65534))
    disk.store.detach(VOLUME, ONE)
    found = path.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (0, 0)
    path.chmod(0o700)  # as an older version left it
    assert disk.store.attach(VOLUME, disk.spec, ONE, Owner(65534, 65534)).stat().st_uid == 65534
    disk.store.detach(VOLUME, ONE)
    assert path.stat().st_mode & 0o777 == 0


def test_a_new_volume_belongs_to_its_user(disk: Disk) -> None:
    path = disk.store.attach(VOLUME, disk.spec, ONE, Owner(1234, 55))
    assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (1234, 55, 0o770)
    image = disk.store.attach(VolumeId(SET, 1), disk.spec, ONE, Owner(group=55, of_image=True))
    assert (image.stat().st_uid, image.stat().st_gid, image.stat().st_mode & 0o777) == (0, 55, 0o770)
    disk.store.detach(VolumeId(SET, 1), ONE)


def test_an_attached_volume_grows_if_its_file_system_can(disk: Disk) -> None:
    path = disk.attach()
    (path / "file").write_text("x")
    before = size_of(path)
    can = disk.setting == "image-xfs" or kernel.has_capability(kernel.SYS_RESOURCE)
    assert disk.volume.grows_detached is not can
    assert disk.store.grow(VOLUME, disk.capacity * 2) is can
    assert (size_of(path) > before * 1.5) is can
    assert disk.volume.capacity == disk.capacity * (2 if can else 1)
    disk.store.detach(VOLUME, ONE)
    assert disk.store.grow(VOLUME, disk.capacity * 3)
    disk.attach()
    assert size_of(path) > before * 2
    assert (path / "file").read_text() == "x"


def test_growth_that_a_crash_interrupted_is_finished(disk: Disk) -> None:
    path = disk.attach()
    before = size_of(path)
    record = disk.root / "volumes/shop/data/0.d/volume.json"
    record.write_text(record.read_text().replace(f'"capacity":{disk.capacity}', f'"capacity":{disk.capacity * 2}'))
    disk.reopen()
    assert disk.volume.holder == ONE
    disk.store.detach(VOLUME, ONE)
    disk.attach()
    assert size_of(path) > before * 1.5


def test_an_attached_volume_is_frozen_for_a_snapshot(disk: Disk) -> None:
    path = disk.attach()
    (path / "file").write_text("x")
    disk.snapshot("first")
    (path / "file").write_text("y")
    disk.store.detach(VOLUME, ONE)
    disk.store.restore(VOLUME, "first", "before")
    assert disk.content() == {"file": "x"}


def test_a_snapshot_that_takes_too_long_is_abandoned(disk: Disk) -> None:
    disk.freeze_limit = 1e-5
    disk.reopen()
    path = disk.attach()
    with pytest.raises(EngineError) as caught:
        disk.snapshot("first")
    refused(caught, Reason.FREEZE_TIMEOUT, "its replica has to stop", "host.freezeLimit")
    (path / "file").write_text("writes go on")
    assert disk.names() == []
    assert list((disk.root / "volumes/shop/data/0.d/partial").iterdir()) == []


def test_what_was_copied_ahead_becomes_the_state_of_the_detached_volume(disk: Disk) -> None:
    disk.freeze_limit = 1e-5
    disk.reopen()
    path = disk.attach()
    (path / "old").write_bytes(os.urandom(1 << 20))
    (path / "gone").write_bytes(os.urandom(1 << 20))
    with pytest.raises(EngineError) as caught:
        disk.store.prepare_snapshot(VOLUME, "first")
    refused(caught, Reason.FREEZE_TIMEOUT)
    (path / "new").write_bytes(os.urandom(300_000))
    (path / "gone").unlink()
    expected = {file.name: file.read_bytes() for file in path.iterdir()}
    disk.store.detach(VOLUME, ONE)
    copied = disk.store.copy_snapshot(VOLUME, "first", "", {})
    path = disk.attach()
    (path / "old").write_text("the replica runs before the snapshot is complete")
    disk.store.complete_snapshot(VOLUME, copied)
    disk.store.detach(VOLUME, ONE)
    disk.store.restore(VOLUME, "first", "before")
    path = disk.attach()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == expected


def test_a_snapshot_under_load_has_all_that_was_written_before_it_and_nothing_after(disk: Disk) -> None:
    disk.freeze_limit = 30  # the machine may be busy
    disk.reopen()
    path = disk.attach()
    (path / "large").write_bytes(os.urandom(4 << 20))
    database = path / "rows.sqlite"
    done, written = threading.Event(), Queue[int]()
    writer = threading.Thread(target=_write_rows, args=(database, written, done))
    writer.start()
    try:
        before = [written.get(timeout=PATIENCE) for _ in range(20)][-1]
        disk.snapshot("first")
        after = written.get(timeout=PATIENCE) + written.qsize() + 1
    finally:
        done.set()
        writer.join()
    disk.store.detach(VOLUME, ONE)
    disk.store.restore(VOLUME, "first", "before")
    disk.attach()
    with closing(sqlite3.connect(database)) as found:
        assert found.execute("pragma integrity_check").fetchone() == ("ok",)
        rows = found.execute("select number, content from rows order by number").fetchall()
    assert [number for number, _ in rows] == list(range(len(rows))), "none is missing in between"
    assert before < len(rows) <= after
    assert all(content == _content(number) for number, content in rows)


def _write_rows(path: Path, written: Queue[int], done: threading.Event) -> None:
    """Write rows, each of which is on the disk before the next, until ``done``."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=full")
        database.execute("create table rows (number integer primary key, content text)")
        for number in count():
            database.execute("insert into rows values (?, ?)", (number, _content(number)))
            written.put(number)
            if done.wait(0.001):
                return


def _content(number: int) -> str:
    return str(number) * 100


def test_a_file_system_thaws_without_the_daemon(disk: Disk) -> None:
    path = disk.attach()
    with pytest.raises(EngineError) as caught, freeze_file_system(path, path.stat().st_dev, 0.05) as deadline:
        (path / "file").write_text("blocked until the limit")
    refused(caught, Reason.FREEZE_TIMEOUT)
    assert deadline > 0
    with pytest.raises(RuntimeError), freeze_file_system(path, path.stat().st_dev, 1.0):
        raise RuntimeError
    (path / "other").write_text("not blocked")


def test_the_next_daemon_thaws_what_is_frozen(disk: Disk) -> None:
    path = disk.attach()
    subprocess.run(["fsfreeze", "--freeze", path], check=True)
    with pytest.raises(EngineError, match="cannot be frozen: "):
        disk.snapshot("first")
    disk.reopen()
    (path / "file").write_text("x")
    assert disk.volume.holder == ONE
    subprocess.run(["fsfreeze", "--freeze", path], check=True)
    subprocess.run(["umount", path], check=True)
    disk.reopen()
    (path / "file").write_text("y")
    assert (disk.volume.holder, disk.volume.lost) == (ONE, False)


def test_only_the_file_system_of_the_volume_is_frozen(disk: Disk) -> None:
    path = disk.attach()
    with (
        pytest.raises(EngineError, match="is no longer mounted"),
        freeze_file_system(disk.root, path.stat().st_dev, 1.0),
    ):
        pass


def test_a_lost_mount_is_noticed_and_mounted_again(disk: Disk) -> None:
    path = disk.attach()
    (path / "file").write_text("x")
    subprocess.run(["umount", path], check=True)
    assert disk.volume.lost
    assert disk.attach() == path
    assert not disk.volume.lost
    assert (path / "file").read_text() == "x"
    subprocess.run(["umount", path], check=True)
    # A process that begins at that moment has a copy of all mounts for a while.
    eventually(lambda: kernel.find_loop(disk.root / "volumes/shop/data/0.d/image") is None)
    disk.reopen()
    assert disk.volume.holder == "", "nothing can use it"


def test_a_file_system_that_stopped_is_lost_and_mounted_again(disk: Disk) -> None:
    path = disk.attach()
    (path / "file").write_text("x")
    subprocess.run(["sync", "-f", path], check=True)
    with (path / "file").open():
        subprocess.run(["xfs_io", "-x", "-c", "shutdown", path], check=True)
        assert disk.volume.lost
        disk.reopen()
        assert (disk.volume.lost, disk.volume.holder) == (True, ONE)
        assert [report for report in disk.reports if "failed: restart its replica" in report]
        with pytest.raises(EngineError) as caught:
            disk.attach()
        refused(caught, Reason.VOLUME_IN_USE, "uses its files: stop that first")
    assert disk.attach() == path
    assert (disk.volume.lost, (path / "file").read_text()) == (False, "x")


def test_a_volume_whose_image_becomes_shorter_is_lost(disk: Disk) -> None:
    (disk.attach() / "file").write_text("x")
    image = disk.root / "volumes/shop/data/0.d/image"
    assert not disk.volume.lost
    os.truncate(image, 8)
    assert disk.volume.lost
    disk.reopen()
    assert disk.volume.lost
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_DAMAGED, "restore a snapshot")


@only_root("only root mounts images")
def test_an_ext4_with_errors_is_repaired_or_not_mounted(tmp_path: Path) -> None:
    with Disk(tmp_path / "root", "image-ext4") as disk:
        disk.fill(file="x")
        image = disk.root / "volumes/shop/data/0.d/image"
        _debug(image, "set_super_value state 2")
        assert (disk.attach() / "file").read_text() == "x"
        disk.store.detach(VOLUME, ONE)
        assert _state(image) == "clean"
        _debug(image, "clri <2>")  # the top directory
        _debug(image, "set_super_value state 2")
        with pytest.raises(EngineError) as caught:
            disk.attach()
        refused(caught, Reason.VOLUME_DAMAGED, "restore a snapshot")
        assert (disk.volume.holder, disk.leftovers()) == ("", [])


def _debug(image: Path, request: str) -> None:
    subprocess.run(["debugfs", "-w", "-R", request, image], check=True, capture_output=True)


def _state(image: Path) -> str:
    output = subprocess.run(["dumpe2fs", "-h", image], check=True, capture_output=True, text=True).stdout
    return next(line.split(":")[1].strip() for line in output.splitlines() if line.startswith("Filesystem state"))


def test_a_busy_loop_device_is_waited_for_and_then_reported(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.engines.host.volumes.image._LOOP_END", 0.1)
    disk.attach()
    image = disk.root / "volumes/shop/data/0.d/image"
    device = kernel.find_loop(image)
    assert device is not None
    with open(device, "rb"):
        with pytest.raises(EngineError) as caught:
            disk.store.detach(VOLUME, ONE)
        refused(caught, Reason.VOLUME_IN_USE, "uses its files: stop that first")
        assert disk.volume.holder == ONE, "no other replica gets it"
        with pytest.raises(EngineError) as caught:
            disk.attach(OTHER)
        refused(caught, Reason.VOLUME_IN_USE, ONE)
    disk.store.detach(VOLUME, ONE)
    assert disk.leftovers() == []
    (disk.attach() / "file").write_text("x")


def test_a_volume_that_a_process_uses_stays_attached(disk: Disk) -> None:
    path = disk.attach()
    with (path / "file").open("w"):
        with pytest.raises(EngineError) as caught:
            disk.store.detach(VOLUME, ONE)
        refused(caught, Reason.VOLUME_IN_USE, f"process {os.getpid()} (", "uses its files: stop that first")
        # Lost behind the back of the daemon, while the process still writes to it.
        subprocess.run(["umount", "-l", path], check=True)
        disk.reopen()
        assert any("no longer mounted" in report for report in disk.reports)
        with pytest.raises(EngineError) as caught:
            disk.attach(OTHER)
        refused(caught, Reason.VOLUME_IN_USE, ONE)
        disk.attach()
        (path / "other").write_text("the same file system, by the same device")
    assert sorted(each.name for each in path.iterdir()) == ["file", "other"]


def test_a_volume_that_is_free_in_a_moment_is_detached(disk: Disk) -> None:
    """As the freeze of a killed daemon ends a moment later."""
    with subprocess.Popen(["sleep", "0.1"], cwd=disk.attach()):
        disk.store.detach(VOLUME, ONE)
    assert disk.volume.holder == ""


def test_something_else_in_place_of_the_mount_is_refused(disk: Disk) -> None:
    path = disk.attach()
    disk.store.detach(VOLUME, ONE)
    subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_UNAVAILABLE, "unmount it")
    subprocess.run(["umount", path], check=True)
    disk.attach()


def test_who_uses_files_is_named_before_a_namespace_that_has_the_mount_too(disk: Disk) -> None:
    path = disk.attach()
    command = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", "echo begun; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        with subprocess.Popen(["sleep", "1000"], cwd=path) as user:
            with pytest.raises(EngineError) as caught:
                disk.store.detach(VOLUME, ONE)
            user.kill()
        other.kill()
    refused(caught, Reason.VOLUME_IN_USE, f"process {user.pid} (sleep) uses its files: stop that first")


def test_a_mount_namespace_that_keeps_a_volume_is_named(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.engines.host.volumes.image._LOOP_END", 0.1)
    disk.attach()
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo begun; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        with pytest.raises(EngineError) as caught:
            disk.store.detach(VOLUME, ONE)
        # Another namespace may have a copy, too.
        refused(caught, Reason.VOLUME_IN_USE, "has it in a mount namespace of its own: stop that first")
        other.kill()
    eventually(lambda: kernel.find_loop(disk.root / "volumes/shop/data/0.d/image") is None)
    disk.store.detach(VOLUME, ONE)


def test_a_missing_image_is_never_replaced_by_an_empty_one(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("first")
    (disk.root / "volumes/shop/data/0.d/image").unlink()
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_DAMAGED, "0.d/image", "restore a snapshot")
    assert disk.volume.holder == ""
    disk.store.clear(VOLUME)
    disk.store.restore(VOLUME, "first", "before")
    assert disk.content() == {"a": "1"}


def test_a_truncated_image_or_snapshot_is_refused(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("first")
    os.truncate(disk.root / "volumes/shop/data/0.d/snapshots/first/data", 4096)
    with pytest.raises(EngineError) as caught:
        disk.store.restore(VOLUME, "first", "before")
    refused(caught, Reason.SNAPSHOT_DAMAGED, "first")
    os.truncate(disk.root / "volumes/shop/data/0.d/image", 4096)
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_DAMAGED, "restore a snapshot")
    assert disk.volume.holder == ""


def test_restoring_a_smaller_snapshot_leaves_the_capacity(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("small")
    disk.store.grow(VOLUME, disk.capacity * 2)
    disk.store.restore(VOLUME, "small", "before")
    assert disk.volume.capacity == disk.capacity * 2
    path = disk.attach()
    assert size_of(path) > disk.capacity * 1.5 * (1 << 30)
    assert (path / "a").read_text() == "1"
