"""Snapshots off the host: exported by restic, imported on another host, and what is reported where that fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from reconciler.engines.host.snapshot_export.exporter import SnapshotExporter
from reconciler.engines.host.snapshot_export.importer import import_snapshot
from reconciler.engines.host.snapshot_export.restic import Restic
from reconciler.engines.host.volumes.layout import VolumeState
from reconciler.engines.protocol import EngineEvent, Observation
from reconciler.errors import EngineError
from reconciler.model.record import Health
from reconciler.settings import ResticSettings
from tests.engines.host.signals import RecordedSignals
from tests.engines.host.volumes.kit import IMAGES, ONE, OURS, SET, VOLUME, Disk, mounted_disk
from tests.support.programs import only_root, tool
from tests.support.sandbox import eventually
from tests.support.waiting import until

ROOT = only_root("only root mounts disks")
NEW_HOST, NAME = "elsewhere", "nightly, with a comma"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> ResticSettings:
    """A repository with a password."""
    place = tmp_path_factory.mktemp("restic")
    settings = ResticSettings(str(place / "repository"), place / "password")
    settings.password_file.write_text("hunter2")
    create(settings)
    return settings


def create(settings: ResticSettings) -> None:
    words = [tool("restic", "restic"), "--repo", settings.repository, "--password-file", str(settings.password_file)]
    subprocess.run([*words, "init"], check=True, capture_output=True)


def with_snapshot(path: Path, setting: str = "directory") -> Disk:
    """A volume with a snapshot of a file, which has changed since."""
    disk = Disk(path / "here", setting)
    file = disk.store.attach(VOLUME, disk.spec, ONE, OURS) / "file"
    file.write_text("as of the snapshot")
    disk.store.detach(VOLUME, ONE)
    disk.store.take_snapshot(VOLUME, NAME, "", {"team": "shop"})
    file.write_text("changed since")
    return disk


async def export(disk: Disk, settings: ResticSettings, events: list[EngineEvent]) -> SnapshotExporter:
    """The exporter of the location, once it has tried."""
    exporter = SnapshotExporter(disk.root, settings, disk.clock, RecordedSignals(events))
    before, working = len(disk.clock.slept), asyncio.create_task(exporter.run())
    try:
        await until(lambda: len(disk.clock.slept) > before, "a pause of the exporter")
    finally:
        working.cancel()
    return exporter


def conditions(exporter: SnapshotExporter) -> list[str]:
    seen = exporter.with_condition(Observation(SET, "here", Health.HEALTHY, b'{"name": "here"}'))
    return [each["message"] for each in json.loads(seen.state).get("status", {}).get("conditions", ())]


def imported(path: Path, settings: ResticSettings, setting: str = "directory") -> Disk:
    """The disk of a new host with the imported snapshot."""
    asyncio.run(import_snapshot(path / NEW_HOST, settings, SET, 0, NAME))
    return Disk(path / NEW_HOST, setting)


def assert_holes_stay(disk: Disk, other: Disk) -> None:
    before, after = (next(each.root.rglob("snapshots/*/data")).stat() for each in (disk, other))
    assert after.st_size == before.st_size
    assert after.st_blocks <= before.st_blocks < before.st_size / 512 / 2


def is_lock(path: Path) -> bool:
    """Whether the file is a lock: one that is being written has a longer name, and keeps nobody out."""
    return len(path.name) == 64


@contextmanager
def ended(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let a program go on after the block, however this ends: one that is stopped would be waited for."""
    try:
        yield
    finally:
        program.send_signal(signal.SIGCONT)


@pytest.fixture
def path(tmp_path: Path, setting: str) -> Iterator[Path]:
    """A folder on a disk where volumes can be stored as ``setting`` says."""
    with mounted_disk(tmp_path / "disk", "btrfs") if setting == "btrfs" else nullcontext(tmp_path) as path:
        yield path


@pytest.mark.parametrize(
    "setting", [IMAGES[0], *(pytest.param(name, marks=[ROOT, pytest.mark.slow]) for name in ("directory", "btrfs"))]
)
def test_a_snapshot_is_exported_once_and_restored_on_a_new_host(
    path: Path, repository: ResticSettings, setting: str
) -> None:
    disk, events = with_snapshot(path, setting), list[EngineEvent]()
    assert conditions(asyncio.run(export(disk, repository, events))) == []
    [marker] = disk.root.rglob("exported.json")
    before = marker.stat().st_mtime_ns
    asyncio.run(export(disk, repository, events))
    assert (marker.stat().st_mtime_ns, events) == (before, [])
    with imported(path, repository, setting) as other:
        [volume] = other.store.list(SET)
        assert (volume.state, volume.backend) == (VolumeState.DELETED, setting)
        assert [(each.name, each.tags) for each in volume.snapshots] == [(NAME, {"team": "shop"})]
        if setting == "image-ext4":
            assert_holes_stay(disk, other)
        other.store.restore(VOLUME, NAME, "before")
        assert (other.store.attach(VOLUME, disk.spec, ONE, OURS) / "file").read_text() == "as of the snapshot"
        for name, message in (
            (NAME, "has a snapshot nightly, with a comma already"),
            ("other", "has no snapshot other"),
        ):
            with pytest.raises(EngineError, match=message):
                asyncio.run(import_snapshot(path / NEW_HOST, repository, SET, 0, name))


@pytest.mark.slow
async def test_data_that_changed_on_the_way_are_not_imported(tmp_path: Path, repository: ResticSettings) -> None:
    disk = with_snapshot(tmp_path)
    [file] = disk.root.rglob("snapshots/*/data/file")
    file.write_text("as of the snapsh0t")
    await export(disk, repository, [])
    with pytest.raises(EngineError, match="does not match its checksum: check the repository"):
        await import_snapshot(tmp_path / NEW_HOST, repository, SET, 0, NAME)
    assert [path for path in (tmp_path / NEW_HOST).rglob("*") if path.is_file()] == []


async def test_a_failed_export_is_a_condition_and_an_event(tmp_path: Path, repository: ResticSettings) -> None:
    disk, events = with_snapshot(tmp_path), list[EngineEvent]()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    missing = ResticSettings(str(tmp_path / "none"), repository.password_file)
    for settings, message in (
        (missing, f"there is no repository at {tmp_path}/none: create it with `restic init`"),
        (ResticSettings(missing.repository, tmp_path / "nothing"), "nothing, cannot be read"),
        (ResticSettings(repository.repository, wrong), f"the password in {wrong} does not open"),
    ):
        exporter = await export(disk, settings, events)
        [shown] = conditions(exporter)
        assert message in shown
        assert shown.startswith(f"{NAME} of volume 0 is not exported: ")
    assert [each.reason for each in events] == ["ExportFailed"] * 3


@pytest.mark.slow
async def test_a_locked_repository_is_a_condition_until_it_is_free(tmp_path: Path) -> None:
    settings = ResticSettings(str(tmp_path / "repository"), tmp_path / "password")
    settings.password_file.write_text("hunter2")
    create(settings)
    disk, events = with_snapshot(tmp_path), list[EngineEvent]()
    words = [tool("restic", "restic"), "--repo", settings.repository, "--password-file", str(settings.password_file)]
    with subprocess.Popen([*words, "check"], stdout=subprocess.DEVNULL) as other, ended(other):
        locks = tmp_path / "repository/locks"
        eventually(lambda: any(map(is_lock, locks.iterdir())) or other.poll() is not None, "the other restic locks it")
        other.send_signal(signal.SIGSTOP)
        assert other.poll() is None
        [shown] = conditions(await export(disk, settings, events))
    assert "is locked by another restic: if none runs, run `restic unlock`" in shown
    assert conditions(await export(disk, settings, events)) == []


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("Fatal: unable to create lock in backend: repository is already locked by PID 1", "run `restic unlock`"),
        (
            "Save(<data/1>) returned error: write /r: no space left on device",
            "the disk of rest:http://\\*\\*\\*@h/ is full",
        ),
        ("Fatal: rest:http://ann:hunter2@h/ answers 500", r"restic failed: Fatal: rest:http://\*\*\*@h/ answers 500"),
        ("", "restic failed with 3"),
    ],
)
async def test_a_failure_has_its_reason_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, message: str
) -> None:
    program = tmp_path / "restic"
    program.write_text(f"#!/bin/sh\necho '{written}' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "password").write_text("hunter2")
    settings = ResticSettings("rest:http://ann:hunter2@h/", tmp_path / "password")
    with pytest.raises(EngineError, match=message) as raised:
        await Restic(settings).find("tag")
    assert "hunter2" not in str(raised.value)


async def test_a_program_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = ResticSettings("rest:http://ann:hunter2@127.0.0.1:1/", tmp_path / "password")
    with pytest.raises(EngineError, match="restic is not installed: apt-get install restic"):
        await import_snapshot(tmp_path / NEW_HOST, settings, SET, 0, NAME)
    assert list(tmp_path.iterdir()) == []
