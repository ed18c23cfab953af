"""Snapshots before a release: what they contain, when there is none, and a release that waits for its snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines import release_snapshots
from reconciler.engines.host.runtimes.protocol import ContainerId
from tests.engines.host.volumesets.kit import DB, ImageVolumeHarness, VolumeHarness, play
from tests.support.programs import only_root

TAG = {"reconciler/snapshot-on": "new-version"}


class ReleaseHarness(VolumeHarness):
    """Applies tagged versions of the database, each with a run of its own commit."""

    async def release(self, version: int, replicas: int = 1, tags: dict[str, str] | None = None) -> None:
        """Apply ``version``; the program writes its number into each volume once it runs."""
        self.records.runs.start("main", f"main@sha1:c{version}", "poll")
        await self.database(version, replicas, tags=TAG if tags is None else tags)
        names = [f"db-{index}" for index in range(replicas)]

        async def updated() -> bool:
            found = self.replicas()
            return sorted(each.name for each in found) == names and all(
                each.ready and each.version == version for each in found
            )

        await self.eventually(updated, f"version {version} runs")
        await self.record()
        for index in range(replicas):
            (self.path(index) / "written").write_text(f"by version {version}")

    async def snapshots(self) -> list[list[str]]:
        """The names of the snapshots of each volume, as the status shows them."""
        return [[each["name"] for each in volume["volumeSnapshots"]] for volume in await self.volumes()]

    def data(self, name: str, index: int = 0) -> str:
        """What a snapshot has of the program."""
        return (self.root / f"volumes/shop/data/{index}.d/snapshots/{name}/data/written").read_text()


def story_of(path: Path, story: Any) -> None:
    play(path, story, ReleaseHarness)


def test_each_volume_is_snapshotted_before_its_replica_has_the_new_version(tmp_path: Path) -> None:
    async def story(host: ReleaseHarness) -> None:
        await host.volumeset(snapshots={"retentionDuration": "7d"})
        await host.release(1, replicas=2)
        assert await host.snapshots() == [[], []]
        await host.release(2, replicas=2)
        await host.release(3, replicas=2)
        assert await host.snapshots() == [["before-db-00002", "before-db-00003"]] * 2
        for index in (0, 1):
            assert host.data("before-db-00002", index) == "by version 1"
            assert host.data("before-db-00003", index) == "by version 2"
        [volume, _] = await host.volumes()
        snapshot = volume["volumeSnapshots"][0]
        assert snapshot["tags"] == TAG | {
            "reconciler/workload": "db",
            "reconciler/version": "2",
            "reconciler/commit": "c2",
        }
        assert snapshot["expires"] > snapshot["created"]

    story_of(tmp_path, story)


@only_root("only root mounts images")
def test_a_volume_that_cannot_be_frozen_for_long_enough_is_snapshotted_between_its_replicas(tmp_path: Path) -> None:
    class SlowReleaseHarness(ReleaseHarness, ImageVolumeHarness):
        def __init__(self, path: Path) -> None:
            ImageVolumeHarness.__init__(self, path, freeze_limit=1e-5)

    async def story(host: SlowReleaseHarness) -> None:
        await host.volumeset()
        await host.release(1, replicas=2)
        await host.release(2, replicas=2)
        assert await host.snapshots() == [["before-db-00002"]] * 2
        assert not list(host.root.glob("volumes/shop/data/*.d/partial/*"))
        host.detach()

    play(tmp_path, story, SlowReleaseHarness)


def test_a_volume_has_a_bounded_number_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_snapshots, "KEEP", 2)

    async def story(host: ReleaseHarness) -> None:
        await host.volumeset()
        await host.release(1)
        await host.command("createVolumeSnapshot", snapshotName="by hand")
        for version in (2, 3, 4, 5):
            await host.release(version)
        [names] = await host.snapshots()
        assert sorted(names) == ["before-db-00003", "before-db-00004", "before-db-00005", "by hand"]

    story_of(tmp_path, story)


def test_a_version_that_starts_again_is_no_release(tmp_path: Path) -> None:
    async def story(host: ReleaseHarness) -> None:
        await host.volumeset()
        await host.release(1, tags={})
        await host.release(2, tags={})
        await host.database(2, tags=TAG)
        await host.restart()
        host.programs.end(ContainerId(DB, "db-0", "main"), 1)
        await host.running("db-0")
        assert await host.snapshots() == [[]]
        await host.release(3)
        assert await host.snapshots() == [["before-db-00003"]]

    story_of(tmp_path, story)


def test_a_release_waits_until_its_snapshot_is_taken(tmp_path: Path) -> None:
    async def story(host: ReleaseHarness) -> None:
        await host.volumeset()
        await host.release(1)
        blocker = host.root / "volumes/shop/data/0.d/partial"
        blocker.write_text("no directory can be made here")
        await host.database(2, tags=TAG)

        async def waits() -> bool:
            seen = await host.seen(DB)
            found = json.loads(seen.state)["status"]["message"] if seen is not None else ""
            return "the snapshot before-db-00002 of volume 0" in found and "must precede the new version" in found

        await host.eventually(waits, "the status has the reason")
        assert [each.version for each in host.replicas() if each.ready] == []
        blocker.unlink()
        await host.release(2)
        assert await host.snapshots() == [["before-db-00002"]]
        assert host.data("before-db-00002") == "by version 1"

    story_of(tmp_path, story)
