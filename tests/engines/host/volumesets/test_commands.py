"""Commands on volumes of the host: their effects, one at a time, and once after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import EngineError
from reconciler.records.tables.commands import NewCommand
from tests.engines.host.kit import play_on
from tests.engines.host.volumesets.kit import DB, SET, ImageVolumeHarness, VolumeHarness, play
from tests.support.programs import only_root
from tests.support.waiting import PATIENCE


async def begin(host: VolumeHarness, content: str = "old") -> None:
    """Run ``db`` with a file on its volume."""
    await host.volumeset()
    await host.database()
    await host.running("db-0")
    (host.path() / "file").write_text(content)


def names(volume: dict[str, Any]) -> list[str]:
    """The names of the snapshots of a volume."""
    return [each["name"] for each in volume["volumeSnapshots"]]


def test_a_snapshot_is_restored_while_the_replica_stops(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        taken = await host.command(
            "createVolumeSnapshot", snapshotName="one", snapshotExpirationDate="2030-01-01T00:00:00Z", tags={"a": "b"}
        )
        [snapshot] = taken["volumeSnapshots"]
        assert (snapshot["name"], snapshot["expires"], snapshot["tags"]) == ("one", "2030-01-01T00:00:00Z", {"a": "b"})
        await host.running("db-0")
        assert host.starts() == 2, "a directory cannot be frozen"
        (host.path() / "file").write_text("new")
        restored = await host.command("restoreVolume", command_id="c2", snapshotName="one")
        await host.running("db-0")
        assert (host.content(), host.starts()) == ({"file": "old"}, 3)
        [former] = [name for name in names(restored) if name != "one"]
        assert former.startswith("pre-restore-2026")
        await host.command("restoreVolume", command_id="c3", snapshotName=former)
        await host.running("db-0")
        assert host.content() == {"file": "new"}
        left = await host.command("deleteVolumeSnapshot", command_id="c4", snapshotName="one")
        assert "one" not in names(left)
        assert host.replica("db-0").containers[0].restarts == 0

    play(tmp_path, story)


@only_root("only root mounts images")
def test_a_replica_stops_for_a_snapshot_that_does_not_fit_into_a_freeze(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.running("db-0")
        [event] = [each for each in host.news() if each.reason == "SnapshotStoppedReplica"]
        assert re.search(r"was without its replica for \d+\.\d s for the snapshot one", event.message)
        assert host.starts() == 2
        (host.path() / "file").write_text("new")
        await host.command("restoreVolume", command_id="c2", snapshotName="one")
        await host.running("db-0")
        assert host.content() == {"file": "old"}
        assert not list(host.path().with_name("0.d").glob("partial/*"))
        host.detach()

    play_on(lambda: ImageVolumeHarness(tmp_path, freeze_limit=1e-5), story)


def test_what_someone_asked_for_is_no_warning_and_no_fault_of_the_workload(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.running("db-0")
        spec = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        healths = set()

        async def restore() -> None:
            task = asyncio.create_task(host.engine.command(SET, "restoreVolume", spec, "c2"))
            while not task.done():
                seen = await host.seen(DB)
                assert seen is not None
                healths.add(str(seen.health))
                await asyncio.sleep(0.001)
            await task

        await host.meanwhile(restore())
        await host.command("deleteVolume", command_id="c3")
        await host.running("db-0")
        assert "Unhealthy" not in healths
        found = [each for each in host.news() if each.key == DB]
        assert "WorkloadError" not in {each.reason for each in found}
        waits = {each.message for each in found if each.reason == "VolumeChanging"}
        assert waits <= {
            f"volume 0 of volumeset/shop/data {what}: it is free afterwards"
            for what in ("gets a snapshot", "is being restored", "is being deleted")
        }

    play(tmp_path, story)


@only_root("only root mounts images")
def test_a_replica_runs_on_if_someone_else_uses_its_volume(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        ours, theirs = pty.openpty()
        command = ["setsid", "--ctty", "sh", "-c", "echo; exec sleep 600"]
        shell = subprocess.Popen(command, cwd=host.path(), stdin=theirs, stdout=theirs)
        try:
            os.read(ours, 1)
            with pytest.raises(EngineError, match=r"is used by (sh|sleep) \(process \d+\), apart from its replica"):
                await host.command("restoreVolume", command_id="c2", snapshotName="one")
        finally:
            shell.kill()
            shell.wait()
            os.close(ours)
            os.close(theirs)
        assert host.starts() == 1, "it was not stopped"
        await host.command("restoreVolume", command_id="c3", snapshotName="one")
        await host.running("db-0")
        host.detach()

    play_on(lambda: ImageVolumeHarness(tmp_path), story)


def test_a_volume_expands_and_keeps_its_data(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        assert (await host.command("expandVolume", newStorageCapacity=30))["currentSize"] == 30
        await host.running("db-0")
        await host.volumeset(version=2, initialCapacity=20)
        assert [each["currentSize"] for each in await host.volumes()] == [30]
        assert host.content() == {"file": "old"}

    play(tmp_path, story)


def test_a_deleted_volume_in_use_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("expandVolume", newStorageCapacity=30)
        await host.command("deleteVolume", command_id="c2")
        await host.running("db-0")
        assert (host.content(), host.starts()) == ({}, 2)
        async with asyncio.timeout(PATIENCE):
            while [(each["lifecycle"], each["currentSize"]) for each in await host.volumes()] != [("bound", 30)]:
                await asyncio.sleep(0.02)

    play(tmp_path, story)


def test_a_deleted_volume_without_a_replica_is_a_memory_with_snapshots(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.database(version=2, mounts=False)

        async def unused() -> bool:
            return await host.lifecycles() == ["unused"]

        await host.eventually(unused, "it is unused")
        await host.command("createVolumeSnapshot", snapshotName="one")
        assert (await host.command("deleteVolume", command_id="c2"))["lifecycle"] == "deleted"
        assert not host.path().exists()
        restored = await host.command("restoreVolume", command_id="c3", snapshotName="one")
        assert (restored["lifecycle"], host.content()) == ("unused", {"file": "old"})

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("expandVolume", {"newStorageCapacity": 10}, "must be larger"),
        ("expandVolume", {"newStorageCapacity": 20000}, "at most 16384"),
        ("deleteVolume", {"volumeIndex": 7}, "there is no volume 7 at here; there are: 0"),
        ("restoreVolume", {"snapshotName": "none"}, "no snapshot none"),
        ("deleteVolumeSnapshot", {"snapshotName": "none"}, "no snapshot none"),
        ("createVolumeSnapshot", {"snapshotName": "../x"}, "a name has up to 100"),
        ("createVolumeSnapshot", {"snapshotName": "one", "location": "there"}, "is for there; this is here"),
        ("shrinkVolume", {}, "no command shrinkVolume"),
    ],
)
def test_an_impossible_command_changes_nothing(tmp_path: Path, name: str, spec: dict[str, Any], message: str) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        before = await host.volumes()
        with pytest.raises(EngineError, match=message):
            await host.command(name, **spec)
        await host.running("db-0")
        assert (host.content(), await host.volumes()) == ({"file": "old"}, before)

    play(tmp_path, story)


def test_a_snapshot_name_exists_once(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        with pytest.raises(EngineError, match="has a snapshot one already"):
            await host.command("createVolumeSnapshot", command_id="c2", snapshotName="one")

    play(tmp_path, story)


def test_a_command_that_a_crash_interrupted_is_performed_once(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("deleteVolume")
        await host.running("db-0")
        (host.path() / "file").write_text("new")
        await host.restart()
        await host.command("deleteVolume")
        await host.running("db-0")
        assert (host.content(), host.starts()) == ({"file": "new"}, 2), "the data of the fresh volume stay"
        await host.command("createVolumeSnapshot", command_id="c2", snapshotName="one")
        record = host.root / "volumes/shop/data/0.d/command.json"
        record.write_text(record.read_text().replace('"done":true', '"done":false'))
        again = await host.command("createVolumeSnapshot", command_id="c2", snapshotName="one")
        assert names(again) == ["one"]

    play(tmp_path, story)


def test_a_daemon_that_stops_meanwhile_performs_the_command_again(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.running("db-0")
        (host.path() / "file").write_text("new")
        spec = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        task = asyncio.create_task(host.engine.command(SET, "restoreVolume", spec, "c2"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await host.restart()
        await host.command("restoreVolume", command_id="c2", snapshotName="one")
        await host.running("db-0")
        assert host.content() == {"file": "old"}

    play(tmp_path, story)


async def interrupt(host: VolumeHarness, **fields: Any) -> None:
    """Leave the volume detached, and the record of a restore that a crash interrupted."""
    await begin(host)
    await host.command("createVolumeSnapshot", snapshotName="one")
    await host.running("db-0")
    await host.database(version=2, mounts=False)

    async def unused() -> bool:
        return await host.lifecycles() == ["unused"]

    await host.eventually(unused, "it is unused")
    begun = {"id": "none", "started": "2026-01-01T00:00:00Z", "done": False, **fields}
    (host.root / "volumes/shop/data/0.d/command.json").write_text(json.dumps(begun))


async def waits(host: VolumeHarness) -> None:
    """Wait until a replica is refused the volume."""
    await host.database(version=3)

    async def refused() -> bool:
        seen = await host.seen(DB)
        return seen is not None and b"has an unfinished restoreVolume" in seen.state

    await host.eventually(refused, "the replica waits for the command")
    assert [each.name for each in host.replicas() if each.ready] == []


def test_no_replica_starts_before_an_interrupted_restore_is_repeated(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        spec = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        command = host.records.commands.add(NewCommand(SET, "here", "restoreVolume", spec, "ann"))
        await interrupt(host, id=command, replaces="restoreVolume")
        (host.path() / "file").write_text("new")
        await host.restart()
        await waits(host)
        await host.command("restoreVolume", command_id=command, snapshotName="one")
        await host.running("db-0")
        assert host.content() == {"file": "old"}

    play(tmp_path, story)


def test_replicas_get_a_volume_whose_command_failed_or_is_not_repeated(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await interrupt(host, replaces="restoreVolume")
        await host.database(version=3)
        await host.running("db-0")
        assert any("restoreVolume that was interrupted is not repeated" in each.message for each in host.news())
        (host.root / "volumes/shop/data/0.d/snapshots/one/data/file").write_text("damaged")
        with pytest.raises(EngineError, match="were changed after it was taken"):
            await host.command("restoreVolume", command_id="c2", snapshotName="one")
        await host.running("db-0")
        assert host.content() == {"file": "old"}

    play(tmp_path, story)


def test_the_record_of_a_command_of_an_older_version_is_read(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await interrupt(host)
        await host.database(version=3)
        await host.running("db-0")

    play(tmp_path, story)


def test_commands_on_one_volume_are_performed_in_turn(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)

        async def all_at_once() -> None:
            specs = [{"location": "here", "volumeIndex": 0, "snapshotName": f"s{number}"} for number in range(3)]
            commands = [
                host.engine.command(SET, "createVolumeSnapshot", each, str(each["snapshotName"])) for each in specs
            ]
            await asyncio.gather(*commands)

        await host.meanwhile(all_at_once())
        await host.running("db-0")
        [volume] = await host.volumes()
        assert sorted(names(volume)) == ["s0", "s1", "s2"]

    play(tmp_path, story)
