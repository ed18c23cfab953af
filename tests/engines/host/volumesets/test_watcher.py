"""What happens to volumes by itself: growth, scheduled snapshots and their expiry, a disk that is almost full."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.engine_state import health_with_conditions
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.key import Kind
from reconciler.model.quantity import GIB
from reconciler.model.record import Health
from tests.engines.host.kit import play_on
from tests.engines.host.volumesets.kit import DB, ImageVolumeHarness, VolumeHarness, play
from tests.support.programs import only_root, small_disk

EVERY_MINUTE = {"schedule": "* * * * *", "retentionDuration": "2m"}


async def begin(host: VolumeHarness, **spec: Any) -> None:
    """Run ``db`` with a file on its volume."""
    await host.volumeset(**spec)
    await host.database()
    await host.running("db-0")
    (host.path() / "file").write_text("x" * 5000)


async def snapshots(host: VolumeHarness) -> list[str]:
    """The names of the snapshots of the volume."""
    return [each["name"] for each in (await host.volumes())[0]["volumeSnapshots"]]


async def conditions(host: VolumeHarness) -> list[dict[str, str]]:
    """The conditions of the volume set."""
    [seen] = [each for each in await host.engine.observe() if each.key.kind is Kind.VOLUMESET]
    found: list[dict[str, str]] = json.loads(seen.state).get("status", {}).get("conditions", [])
    return found


def reasons(host: VolumeHarness) -> list[str]:
    """The reasons of all events of the volume set."""
    return [str(each.reason) for each in host.news() if str(each.key).startswith("volumeset")]


def test_a_larger_manifest_expands_volumes_and_a_full_one_grows(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.volumeset(version=2, initialCapacity=15)

        async def size() -> float:
            return float((await host.volumes())[0]["currentSize"])

        async def expanded() -> bool:
            return await size() == 15

        await host.eventually(expanded, "the manifest expands it", pace=3.0)
        assert (await host.volumes())[0]["currentBytesUsed"] >= 5000
        growth = {"maxCapacity": 40, "minFreePercentage": 100, "scalingFactor": 1.5}
        await host.volumeset(version=3, initialCapacity=15, autoscaling=growth)

        async def grown() -> bool:
            return await size() == 40

        await host.eventually(grown, "it grows to its maximum", pace=3.0)
        assert reasons(host) == ["VolumeExpanded"]
        assert host.starts() == 1, "a directory grows while it is in use"

    play(tmp_path, story)


def test_scheduled_snapshots_are_taken_once_and_expire_but_for_the_newest(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, snapshots=EVERY_MINUTE)

        async def two() -> bool:
            return len(await snapshots(host)) == 2

        await host.eventually(two, "two snapshots are taken", pace=3.0)
        first = (await snapshots(host))[0]
        assert first.startswith("scheduled-20260101T")
        assert "SnapshotExpired" not in reasons(host)
        await host.running("db-0")
        await host.engine.close()
        await host.time.advance(1800)
        await host.restart()

        async def newest() -> bool:
            return first not in await snapshots(host) and len(await snapshots(host)) <= 2

        await host.eventually(newest, "one of the missed times is taken, and the former ones expire", pace=3.0)
        assert any(first in each.message for each in host.news() if each.reason == "SnapshotExpired")
        await host.volumeset(version=2)
        await host.eventually(_is_one(host), "the newest one stays", pace=3.0)
        await host.time.advance(3600)
        await host.eventually(_is_one(host), "it stays for good", pace=3.0)

    play(tmp_path, story)


def test_no_schedule_takes_or_deletes_a_snapshot_before_git_is_read(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, snapshots=EVERY_MINUTE)

        async def some() -> bool:
            return bool(await snapshots(host))

        await host.eventually(some, "one is taken", pace=3.0)
        host.git_is_read = False
        await host.restart()
        await host.running("db-0")
        taken = await snapshots(host)
        for _ in range(40):
            await host.time.advance(15.0)
            await asyncio.sleep(0.001)
        assert await snapshots(host) == taken
        host.engine.begin_schedules()

        async def other() -> bool:
            return await snapshots(host) not in ([], taken)

        await host.eventually(other, "the schedule goes on", pace=3.0)

    play(tmp_path, story)


@pytest.mark.slow
def test_a_clock_that_jumps_ahead_deletes_no_snapshot_within_an_hour(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, snapshots={"schedule": "* * * * *", "retentionDuration": "1d"})

        async def two() -> bool:
            return len(await snapshots(host)) == 2

        await host.eventually(two, "two snapshots are taken", pace=3.0)
        taken = await snapshots(host)
        for _ in range(2):
            host.time.jump(400 * 86_400.0)
            await host.time.advance(45.0)
            assert set(taken) <= set(await snapshots(host))
            host.time.jump(-400 * 86_400.0)
        host.time.jump(400 * 86_400.0)
        await host.running("db-0")
        await host.time.advance(3700.0)

        async def gone() -> bool:
            return not set(taken) & set(await snapshots(host))

        await host.eventually(gone, "they expire by a clock that was right", pace=3.0)

    play(tmp_path, story)


def test_a_volume_keeps_a_number_of_snapshots_and_a_good_one_beside_a_damaged_one(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, snapshots={"schedule": "* * * * *"})

        async def four() -> bool:
            return len(await snapshots(host)) == 4

        await host.eventually(four, "four are taken", pace=3.0)
        taken = await snapshots(host)
        await host.volumeset(version=2, tags={"reconciler/snapshot-keep-last": "3"})

        async def three() -> bool:
            return await snapshots(host) == taken[1:]

        await host.eventually(three, "the oldest one is deleted", pace=3.0)
        (host.path().with_name("0.d") / "snapshots" / taken[3] / "data" / "file").write_text("flipped")
        await host.volumeset(version=3, tags={"reconciler/snapshot-keep-last": "1"})

        async def two() -> bool:
            return await snapshots(host) == taken[2:]

        await host.eventually(two, "the newest undamaged one is kept with the damaged one", pace=3.0)
        for _ in range(5):
            await host.time.advance(15.0)
            assert await snapshots(host) == taken[2:]
        assert reasons(host).count("SnapshotDamaged") == 1

    play(tmp_path, story)


def test_a_snapshot_that_fails_is_a_condition_and_tried_at_growing_intervals(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, snapshots={"schedule": "*/20 * * * *"})
        obstacle = host.path().with_name("0.d") / "snapshots"
        obstacle.write_text("a file in place of the directory")

        async def failing() -> bool:
            return "SnapshotFailing" in [each["type"] for each in await conditions(host)]

        await host.eventually(failing, "the first time of the schedule fails", pace=3.0)
        seen = await host.seen()
        assert seen is not None
        assert health_with_conditions(seen.health, seen.state) is Health.UNHEALTHY
        [condition] = await conditions(host)
        assert condition["reason"] == "SnapshotFailed"
        assert condition["message"].startswith("scheduled-20260101T")
        for _ in range(60):  # 15 minutes, with a check each 15 s
            await host.time.advance(15.0)
            await host.running("db-0")
        assert 3 <= host.starts() <= 10, "each attempt stops the replica of a directory, and there were 60 checks"
        assert reasons(host).count("SnapshotFailed") == 1
        obstacle.unlink()
        await host.command("createVolumeSnapshot", snapshotName="by-hand")

        async def well() -> bool:
            found = await host.seen()
            healthy = found is not None and health_with_conditions(found.health, found.state) is Health.HEALTHY
            return healthy and not await conditions(host)

        await host.eventually(well, "a newer copy ends the condition", pace=3.0)

    play(tmp_path, story)


def test_what_fails_holds_back_nothing_else(tmp_path: Path) -> None:
    """A snapshot that cannot be deleted prevents no new one."""

    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="old", snapshotExpirationDate="2026-01-01T00:01:00Z")
        await host.running("db-0")
        folder = host.path().with_name("0.d") / "snapshots" / "old" / "data"
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        try:
            await host.volumeset(version=2, snapshots={"schedule": "* * * * *"})

            async def taken() -> bool:
                return any(name.startswith("scheduled-") for name in await snapshots(host))

            await host.eventually(taken, "a snapshot is taken", pace=3.0)
            assert [each["type"] for each in await conditions(host)] == ["VolumeCheckFailing"]
            assert reasons(host).count("VolumeCheckFailed") == 1
        finally:
            subprocess.run(["umount", folder], check=True)

    play(tmp_path, story)


@only_root("only root mounts images")
def test_the_week_until_an_image_is_trimmed_goes_on_through_a_restart(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host)
        image = host.path().with_name("0.d") / "image"
        big = host.path() / "big"

        async def seen() -> bool:
            return (host.root / "volume-trims.json").exists()

        await host.eventually(seen, "the week begins", pace=3.0)
        big.write_bytes(b"x" * (20 << 20))
        subprocess.run(["sync", "-f", host.path()], check=True)
        big.unlink()
        subprocess.run(["sync", "-f", host.path()], check=True)
        full = image.stat().st_blocks
        await host.engine.close()
        await host.time.advance(8 * 86_400)
        await host.restart()

        async def trimmed() -> bool:
            return image.stat().st_blocks < full - (15 << 20) // 512

        await host.eventually(trimmed, "the blocks are given back when a week has passed", pace=3.0)
        host.detach()

    play_on(lambda: ImageVolumeHarness(tmp_path), story)


@pytest.mark.parametrize("restart", [False, True])
def test_a_lock_that_somebody_removes_is_there_again(tmp_path: Path, restart: bool) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        lock = host.root / "volumes/shop/data/0.d/lock"
        before = lock.read_bytes()
        if restart:
            await host.engine.close()
        lock.unlink()
        if restart:
            await host.restart()

        async def locked() -> bool:
            return lock.exists() and lock.read_bytes() == before

        await host.eventually(locked, "it is locked again", pace=3.0)
        assert host.starts("db-0") == 1
        named = [each.message for each in host.news() if "the lock of" in each.message]
        assert named == [
            "the lock of volume 0 of volumeset/shop/data was missing, though workload/shop/db replica db-0 uses it: it "
            "is locked again"
        ]
        # It is the replica's until that ends.
        await host.database(version=2, suspend=True)

        async def released() -> bool:
            return not lock.exists()

        await host.eventually(released, "it is released", pace=3.0)

    play(tmp_path, story)


def _is_one(host: VolumeHarness) -> Any:
    async def one() -> bool:
        return len(await snapshots(host)) == 1

    return one


@only_root("only root mounts images")
def test_volumes_that_promise_more_than_the_disk_has_are_a_condition(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")

        async def reported() -> bool:
            return [each["type"] for each in await conditions(host)] == ["DiskOvercommitted"]

        await host.eventually(reported, "the promise is compared with the disk", pace=3.0)
        [condition] = await conditions(host)
        assert "may grow to 10 GB together, and their disk has 0.4 GB" in condition["message"]
        seen = await host.seen()
        assert seen is not None
        assert seen.health is Health.HEALTHY
        host.detach()

    with small_disk(tmp_path / "disk", "size=400m") as disk:
        play_on(lambda: ImageVolumeHarness(disk), story)


@only_root("only root mounts images")
def test_an_image_that_is_nearly_full_has_a_condition_until_it_has_room(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")

        async def is_full() -> bool:
            return "VolumeNearlyFull" in [each["type"] for each in await conditions(host)]

        async def has_room() -> bool:
            return not await is_full()

        # Reserved blocks are in use, and take no room of the disk.
        with (host.path() / "file").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 92 * 10 * GIB // 100)
        await host.eventually(is_full, "it is measured", pace=3.0)
        seen = await host.seen()
        assert seen is not None
        assert seen.health is Health.HEALTHY
        (host.path() / "file").unlink()
        await host.eventually(has_room, "it is measured again", pace=3.0)
        host.detach()

    play_on(lambda: ImageVolumeHarness(tmp_path), story)


def test_a_disk_that_is_almost_full_is_reported_once(tmp_path: Path) -> None:
    class SmallDisk(VolumeHarness):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            host = msgspec.structs.replace(self._settings.host, disk_reserve=100)
            self._settings = msgspec.structs.replace(self._settings, host=host)
            self.engine = self._made()

    async def story(host: SmallDisk) -> None:
        await begin(host, snapshots=EVERY_MINUTE)

        async def reported() -> bool:
            return "HostDiskLow" in reasons(host)

        await host.eventually(reported, "the disk is too full for a snapshot", pace=3.0)
        for _ in range(5):
            await host.time.advance(15.0)
            await host.running("db-0")
        assert reasons(host).count("HostDiskLow") == 1
        condition, failing = await conditions(host)
        assert (condition["type"], condition["reason"]) == ("HostDiskLow", "HostDiskLow")
        assert "are reserved" in condition["message"]
        assert failing["type"] == "SnapshotFailing"
        assert await snapshots(host) == []
        await host.volumeset(version=2)

        async def gone() -> bool:
            return not await conditions(host)

        await host.eventually(gone, "nothing needs the room any more", pace=3.0)

    play_on(lambda: SmallDisk(tmp_path), story)


@only_root("only root mounts images")
def test_a_lost_file_system_is_reported_once_and_mounted_again(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host)
        subprocess.run(["sync", "-f", host.path()], check=True)
        subprocess.run(["xfs_io", "-x", "-c", "shutdown", host.path()], check=True)

        async def reported() -> bool:
            return "VolumeCheckFailed" in reasons(host)

        await host.eventually(reported, "the failure is reported", pace=3.0)
        assert await host.lifecycles() == ["repairing"]
        assert [each.message for each in host.news() if each.reason == "VolumeCheckFailed"] == [
            "VolumeUnavailable: volume 0 of volumeset/shop/data has lost its file system: it is no longer mounted, its "
            "image is damaged, or it stopped after an error, such as a full disk of the host. Make room if that is full"
            ", then mount it again: reconciler restart workload/shop/db"
        ]
        host.programs.end(ContainerId(DB, "db-0", "main"), 1)

        async def bound() -> bool:
            await host.time.advance(15.0)
            return await host.lifecycles() == ["bound"]

        await host.eventually(bound, "the next start mounts it again", pace=3.0)
        assert len(host.content()["file"]) == 5000
        assert reasons(host).count("VolumeCheckFailed") == 1
        host.detach()

    play_on(lambda: ImageVolumeHarness(tmp_path), story)
