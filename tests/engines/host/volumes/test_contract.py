"""What every backend of volumes does alike."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.volumes.layout import VolumeState
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ALL, ONE, OTHER, SET, VOLUME, Disk, disk_with, refused


@pytest.fixture(params=ALL)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A store with each backend."""
    with disk_with(request.param, tmp_path) as disk:
        yield disk


def test_a_volume_is_created_empty_and_its_data_stay(disk: Disk) -> None:
    path = disk.attach()
    assert path == disk.root / "volumes/shop/data/0"
    assert list(path.iterdir()) == []
    (path / "file").write_text("x")
    assert disk.attach() == path, "attached twice to the same holder"
    disk.store.detach(VOLUME, ONE)
    disk.store.detach(VOLUME, ONE)
    disk.reopen()
    assert disk.content() == {"file": "x"}
    assert (disk.volume.capacity, disk.volume.state, disk.volume.holder) == (disk.capacity, VolumeState.READY, "")


def test_an_attached_volume_is_refused_to_others(disk: Disk) -> None:
    disk.attach()
    for again in (False, True):
        if again:
            disk.reopen()
        with pytest.raises(EngineError) as caught:
            disk.attach(OTHER)
        refused(caught, Reason.VOLUME_IN_USE, ONE)
        assert disk.volume.holder == ONE
        assert not disk.volume.lost
    for refusal in (
        lambda: disk.store.clear(VOLUME),
        lambda: disk.store.drop(SET, keep_final_snapshot=False),
    ):
        with pytest.raises(EngineError) as caught:
            refusal()
        refused(caught, Reason.VOLUME_IN_USE, ONE)
    disk.store.detach(VOLUME, OTHER)
    assert disk.volume.holder == ONE, "only the holder detaches"
    disk.store.detach(VOLUME, ONE)
    disk.attach(OTHER)
    assert disk.volume.holder == OTHER


def test_a_boot_unlocks_volumes(disk: Disk) -> None:
    disk.attach()
    disk.store.detach(VOLUME, ONE)
    (disk.root / "volumes/shop/data/0.d/lock").write_bytes(msgspec.json.encode({"holder": ONE, "boot": "former"}))
    assert disk.volume.holder == ""
    disk.reopen()
    assert not (disk.root / "volumes/shop/data/0.d/lock").exists()
    disk.attach(OTHER)


def test_a_snapshot_restores_what_was_there(disk: Disk) -> None:
    disk.fill(a="1", b="2")
    disk.store.take_snapshot(VOLUME, "first", "2030-01-01T00:00:00Z", {"why": "test"})
    disk.fill(a="changed", c="3")
    disk.store.restore(VOLUME, "first", "pre-restore-1")
    assert disk.content() == {"a": "1", "b": "2"}
    first, before = disk.volume.snapshots
    assert (first.name, first.expires, first.tags, first.capacity) == (
        "first",
        "2030-01-01T00:00:00Z",
        {"why": "test"},
        disk.capacity,
    )
    assert first.size > 0
    assert len(first.checksum) == 64
    assert before.name == "pre-restore-1"
    disk.store.restore(VOLUME, "pre-restore-1", "pre-restore-2")
    assert disk.content() == {"a": "changed", "b": "2", "c": "3"}


def test_an_interrupted_restore_is_repeated_and_keeps_what_was_written_since(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("first")
    disk.fill(a="2")
    disk.snapshot("pre-restore")  # what a restore did before it was interrupted
    disk.store.restore(VOLUME, "first", "pre-restore")
    assert disk.names() == ["first", "pre-restore"]
    disk.fill(a="3")
    disk.store.restore(VOLUME, "first", "pre-restore")
    assert disk.content() == {"a": "1"}
    assert disk.names() == ["first", "pre-restore", "pre-restore-2"]


def test_names_of_snapshots_are_unique_and_may_be_hostile(disk: Disk) -> None:
    disk.fill(a="1")
    for name in (".hidden", "partial", "..x", "snapshot.json", "-rf", "ü" * 100):
        disk.snapshot(name)
        with pytest.raises(EngineError) as caught:
            disk.snapshot(name)
        refused(caught, Reason.SNAPSHOT_EXISTS, name)
        disk.reopen()
        disk.store.delete_snapshot(VOLUME, name)
    before = disk.tree()
    for name in ("..", ".", "", "a/b", "../../../../etc", "a\0b"):
        for act in (disk.snapshot, lambda each: disk.store.delete_snapshot(VOLUME, each)):
            with pytest.raises(EngineError) as caught:
                act(name)
            refused(caught, Reason.INVALID_COMMAND, "name")
    with pytest.raises(EngineError, match="File name too long"):
        disk.snapshot("x" * 300)
    assert disk.tree() == before
    assert disk.names() == []


def test_what_does_not_exist_is_refused(disk: Disk) -> None:
    for act in (disk.store.clear, lambda each: disk.store.grow(each, 20), lambda each: disk.snapshot("x", each)):
        with pytest.raises(EngineError) as caught:
            act(VOLUME)
        refused(caught, Reason.VOLUME_NOT_FOUND, "volume 0 of volumeset/shop/data")
    assert disk.tree() == []
    disk.fill()
    with pytest.raises(EngineError) as caught:
        disk.store.restore(VOLUME, "none", "before")
    refused(caught, Reason.SNAPSHOT_NOT_FOUND, "none")
    assert disk.names() == []
    assert disk.store.list(Key.parse("volumeset/shop/other")) == ()
    assert disk.store.usage(VolumeId(SET, 7)) == 0


def test_a_cleared_volume_keeps_its_record_and_snapshots_and_begins_empty(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("first")
    disk.store.clear(VOLUME)
    disk.store.clear(VOLUME)
    assert disk.volume.state is VolumeState.DELETED
    assert disk.names() == ["first"]
    assert disk.store.usage(VOLUME) == 0
    with pytest.raises(EngineError, match="restore a snapshot"):
        disk.snapshot("second")
    disk.reopen()
    assert disk.content() == {}
    assert disk.names() == ["first"]
    disk.store.clear(VOLUME)
    disk.store.restore(VOLUME, "first", "before")
    assert disk.volume.state is VolumeState.READY
    assert disk.names() == ["first"], "there was nothing to keep"
    assert disk.content() == {"a": "1"}


def test_a_volume_grows_and_never_shrinks(disk: Disk) -> None:
    disk.fill(a="1")
    assert disk.store.grow(VOLUME, disk.capacity * 2)
    assert disk.store.grow(VOLUME, disk.capacity * 2)
    assert disk.store.grow(VOLUME, disk.capacity)
    assert disk.volume.capacity == disk.capacity * 2
    assert disk.content() == {"a": "1"}


def test_a_dropped_set_leaves_its_final_snapshots_only(disk: Disk) -> None:
    disk.fill(a="1")
    disk.snapshot("first")
    disk.attach(volume=VolumeId(SET, 1))
    disk.store.detach(VolumeId(SET, 1), ONE)
    disk.store.clear(VolumeId(SET, 1))
    disk.store.drop(SET, keep_final_snapshot=True)
    disk.store.drop(SET, keep_final_snapshot=True)
    assert disk.store.list(SET) == ()
    assert not (disk.root / "volumes").exists()
    (final,) = disk.store.list_deleted()
    assert (final.volumeset, final.index, final.snapshot.capacity) == (SET, 0, disk.capacity)
    disk.fill(a="2")
    disk.store.drop(SET, keep_final_snapshot=True)
    assert len(disk.store.list_deleted()) == 2
    disk.fill(a="3")
    disk.store.drop(SET, keep_final_snapshot=False)
    for each in disk.reopen().list_deleted():
        disk.store.delete_final_snapshot(each)
        disk.store.delete_final_snapshot(each)
    assert disk.store.list_deleted() == ()
    assert disk.tree() == []


def test_usage_counts_what_is_written(disk: Disk) -> None:
    path = disk.attach()
    empty = disk.store.usage(VOLUME)
    (path / "file").write_bytes(os.urandom(1 << 20))
    os.sync()
    assert 1 << 20 <= disk.store.usage(VOLUME) - empty < 2 << 20
    disk.store.detach(VOLUME, ONE)
    assert disk.store.usage(VOLUME) >= 1 << 20


def test_a_changed_snapshot_is_not_restored(disk: Disk) -> None:
    disk.fill(a="1" * 5000)
    disk.snapshot("first")
    spoil(disk.root / "volumes/shop/data/0.d/snapshots/first/data")
    disk.fill(a="2")
    with pytest.raises(EngineError) as caught:
        disk.store.restore(VOLUME, "first", "before")
    refused(caught, Reason.SNAPSHOT_DAMAGED, "first")
    assert not caught.value.retry
    assert disk.content() == {"a": "2"}
    assert disk.names() == ["first"]


def test_an_unreadable_record_changes_nothing(disk: Disk) -> None:
    disk.fill(a="1")
    record = disk.root / "volumes/shop/data/0.d/volume.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:20])
    before = disk.tree()
    disk.reopen()
    assert any("volume.json" in report for report in disk.reports)
    with pytest.raises(EngineError) as caught:
        disk.attach()
    refused(caught, Reason.VOLUME_DAMAGED, "volume.json")
    assert disk.tree() == before
    record.write_bytes(whole)
    assert disk.content() == {"a": "1"}


def spoil(data: Path) -> None:
    """Flip one bit of the first file in ``data``."""
    subprocess.run(["btrfs", "property", "set", "-ts", data, "ro", "false"], check=False, stderr=subprocess.DEVNULL)
    file = data if data.is_file() else next(path for path in data.rglob("*") if path.is_file())
    with file.open("r+b") as opened:
        byte = opened.read(1)
        opened.seek(0)
        opened.write(bytes([byte[0] ^ 1]))


def test_of_many_replicas_one_gets_the_volume(disk: Disk) -> None:
    def attach(holder: str) -> str:
        try:
            disk.attach(holder)
        except EngineError as error:
            return str(error.reason)
        return holder

    with ThreadPoolExecutor(6) as pool:
        results = set(pool.map(attach, [ONE, OTHER] * 3))
    assert results == {disk.volume.holder, str(Reason.VOLUME_IN_USE)}
    assert len(disk.mounts()) == (1 if "image" in disk.setting else 0)
