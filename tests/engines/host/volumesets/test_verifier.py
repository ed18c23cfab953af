"""Proofs of snapshots: a copy is checked in a container of its own, and the volume and its replica are untouched."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import play_on
from tests.engines.host.volumesets.kit import SET, ImageVolumeHarness, VolumeHarness, play
from tests.support.programs import only_root

CHECK = "test -e /data/file && echo the copy is well; grep -q good /data/file"


class CheckingRuntime(FakeRuntime):
    """A runtime whose checks are run on this machine, to their end, with the source of the mount for its path."""

    async def start(self, launch: ContainerStart) -> None:
        """Start a container; a check has ended by then."""
        await super().start(launch)
        if launch.place.replica != "db-verify":
            return
        [mount] = launch.mounts
        command = [each.replace(mount.path, str(mount.source)) for each in (launch.command, *launch.args)]
        if "sleep" in command:  # it is killed with the daemon
            return
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        self.output(launch.place).write_text(done.stdout + done.stderr)
        self._programs.end(launch.place, done.returncode)

    def output(self, place: ContainerId) -> Path:
        """What a check has written."""
        return Path(self.directory) / f"{place.replica}.out"

    directory = ""


def host_for(path: Path, kind: type[VolumeHarness] = VolumeHarness) -> VolumeHarness:
    """A host that runs checks, whose output is below ``path``."""
    path.mkdir(exist_ok=True)
    return kind(path, type("Runtime", (CheckingRuntime,), {"directory": str(path)}))


async def begin(host: VolumeHarness, content: str = "good", check: str = CHECK, **tags: str) -> None:
    """Run ``db``, whose snapshots have a check, with a file on its volume."""
    await host.volumeset()
    await host.database(tags={"reconciler/verify-snapshot": check, **tags} if check else tags)
    await host.running("db-0")
    (host.path() / "file").write_text(content)


async def proven(host: VolumeHarness) -> dict[str, str]:
    """The names of the proven snapshots, each with the time."""
    [volume] = await host.volumes()
    tags = {each["name"]: each["tags"].get("reconciler/proven") for each in volume["volumeSnapshots"]}
    return {name: at for name, at in tags.items() if at}


def is_clean(host: VolumeHarness) -> bool:
    """Whether nothing is left of a check."""
    copies = host.root / "verification"
    return not [*copies.rglob("*")] and not [each for each in host.programs.places() if each.replica == "db-verify"]


async def restores_twice(host: VolumeHarness) -> None:
    await begin(host)
    await host.command("createVolumeSnapshot", snapshotName="one")
    await host.running("db-0")
    (host.path() / "file").write_text("other")
    starts = host.starts()
    answer = await host.command("verifyVolumeSnapshot", command_id="c2", snapshotName="one")
    assert answer["lastProven"] == answer["volumeSnapshots"][0]["tags"]["reconciler/proven"]
    assert (host.content(), host.starts(), is_clean(host)) == ({"file": "other"}, starts, True)
    assert [each.reason for each in host.news()].count(Reason.SNAPSHOT_PROVEN) == 1
    await host.command("restoreVolume", command_id="c3", snapshotName="one")
    await host.running("db-0")
    assert host.content() == {"file": "good"}, "what the check is given is a copy"


def test_a_snapshot_is_proven_while_its_replica_runs(tmp_path: Path) -> None:
    play_on(lambda: host_for(tmp_path / "host"), restores_twice)


@only_root("only root mounts images")
def test_a_snapshot_of_an_image_is_proven_while_its_replica_runs(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await restores_twice(host)
        host.detach()

    play_on(lambda: host_for(tmp_path / "host", ImageVolumeHarness), story)


def test_a_check_changes_only_its_copy(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, check="rm /data/file")
        await host.command("createVolumeSnapshot", snapshotName="one")
        for number in (2, 3):
            await host.command("verifyVolumeSnapshot", command_id=f"c{number}", snapshotName="one")
        assert host.content() == {"file": "good"}

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_a_failed_check_is_an_error_with_its_last_line_and_no_proof(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, "bad")
        await host.command("createVolumeSnapshot", snapshotName="one")
        with pytest.raises(EngineError, match="snapshot one of volume 0 ended with 1: the copy is well") as found:
            await host.command("verifyVolumeSnapshot", command_id="c2", snapshotName="one")
        assert found.value.reason == Reason.SNAPSHOT_VERIFICATION_FAILED
        assert (await proven(host), is_clean(host)) == ({}, True)

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_without_a_check_the_checksum_is_what_is_proven(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, check="")
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.command("createVolumeSnapshot", command_id="c2", snapshotName="two")
        (host.path().with_name("0.d") / "snapshots/two/data/file").write_text("rotten")
        await host.command("verifyVolumeSnapshot", command_id="c3", snapshotName="one")
        with pytest.raises(EngineError, match=r"the data of the snapshot two .* were changed"):
            await host.command("verifyVolumeSnapshot", command_id="c4", snapshotName="two")
        with pytest.raises(EngineError, match="has no snapshot three"):
            await host.command("verifyVolumeSnapshot", command_id="c5", snapshotName="three")
        assert [*await proven(host)] == ["one"]

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_a_suspended_workload_has_its_snapshots_proven_too(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.database(version=2, tags={"reconciler/verify-snapshot": CHECK}, suspend=True)
        await host.running()
        await host.command("verifyVolumeSnapshot", command_id="c2", snapshotName="one")
        assert [*await proven(host)] == ["one"]
        assert host.replicas() == []

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_a_volume_set_without_a_workload_is_proven_by_its_checksum(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.database(version=2, mounts=False)
        await host.record()
        await host.command("verifyVolumeSnapshot", command_id="c2", snapshotName="one")
        assert [*await proven(host)] == ["one"]

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_the_newest_snapshot_is_proven_by_the_schedule(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, **{"reconciler/verify-schedule": "30 * * * *"})
        await host.command("createVolumeSnapshot", snapshotName="one")
        await host.command("createVolumeSnapshot", command_id="c2", snapshotName="two")
        assert await proven(host) == {}

        async def done() -> bool:
            return bool(await proven(host))

        await host.eventually(done, "it is half past", pace=30.0)
        first = await proven(host)
        assert [*first] == ["two"]

        async def again() -> bool:
            return (await proven(host)).get("two", "") > first["two"]

        await host.eventually(again, "the next hour", pace=30.0)
        await host.restart()
        [volume] = await host.volumes()
        assert volume["lastProven"] == (await proven(host))["two"]

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_a_proof_that_fails_is_a_condition_until_one_succeeds(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, "bad", **{"reconciler/verify-schedule": "30 * * * *"})
        await host.command("createVolumeSnapshot", snapshotName="one")

        async def failing() -> bool:
            seen = await host.seen()
            assert seen is not None
            return b"SnapshotVerificationFailing" in seen.state

        await host.eventually(failing, "it is half past", pace=30.0)
        (host.path() / "file").write_text("good")
        await host.command("createVolumeSnapshot", command_id="c2", snapshotName="two")

        async def well() -> bool:
            return not await failing()

        await host.eventually(well, "another snapshot is well", pace=30.0)
        assert [*await proven(host)] == ["two"]
        failures = [each for each in host.news() if each.reason == Reason.SNAPSHOT_VERIFICATION_FAILED]
        assert len(failures) == 1

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_what_a_killed_daemon_leaves_of_a_check_is_removed_and_no_replica(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, check='["sleep", "1000"]')
        await host.command("createVolumeSnapshot", snapshotName="one")
        spec: dict[str, Any] = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        task = asyncio.create_task(host.engine.command(SET, "verifyVolumeSnapshot", spec))

        async def checking() -> bool:
            return any(each.replica == "db-verify" for each in host.programs.places())

        await host.eventually(checking, "the check runs")
        left = dict(host.programs.running)
        task.cancel()
        await asyncio.wait([task])
        assert is_clean(host), "a daemon that ends removes it"
        host.programs.running.update(
            {place: program for place, program in left.items() if place.replica == "db-verify"}
        )
        (host.root / "verification/volumes/shop/data/0").mkdir(parents=True)
        await host.restart()
        assert [replica.name for replica in host.replicas()] == ["db-0"]
        assert not [container_id for container_id in host.programs.places() if container_id.replica == "db-verify"]

        async def clean() -> bool:
            return is_clean(host)

        await host.eventually(clean, "the copy is removed too")

    play_on(lambda: host_for(tmp_path / "host"), story)


@pytest.mark.slow
def test_a_check_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host, check='["sleep", "10000"]')
        await host.command("createVolumeSnapshot", snapshotName="one")
        spec: dict[str, Any] = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        task = asyncio.create_task(host.engine.command(SET, "verifyVolumeSnapshot", spec))

        async def ended() -> bool:
            return task.done()

        await host.eventually(ended, "an hour is over", pace=30.0)
        with pytest.raises(EngineError, match="did not end within 3600 s"):
            task.result()
        assert is_clean(host)

    play_on(lambda: host_for(tmp_path / "host"), story)


def test_clones_are_snapshots_of_another_volume_set(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await begin(host)
        await host.command("createVolumeSnapshot", snapshotName="one")
        copy = Key.parse("volumeset/shop/copy")
        await host.volumeset(key=copy)
        answer = await host.command("cloneVolumeSnapshot", copy, snapshotName="one", source="//gvc/shop/volumeset/data")
        [clone] = answer["volumeSnapshots"]
        assert clone["tags"] == {"reconciler/cloned-from": "volumeset/shop/data/0/one"}
        again = await host.command("cloneVolumeSnapshot", copy, snapshotName="one", source=str(SET))
        assert again == answer, "repeated after a crash"
        refused = {
            "c2": ("has a snapshot one already", str(SET), "one"),
            "c3": ("has no snapshot two", str(SET), "two"),
            "c4": ("there is no volumeset/shop/none at here", "volumeset/shop/none", "one"),
            "c5": ("restores its own snapshots", "volumeset/shop/copy", "one"),
        }
        for command_id, (message, source, name) in refused.items():
            with pytest.raises(EngineError, match=message):
                await host.command("cloneVolumeSnapshot", copy, command_id, snapshotName=name, source=source)
        await host.command("restoreVolume", copy, "c6", snapshotName="one")
        assert (host.path().parent.parent / "copy/0/file").read_text() == "good"

    play(tmp_path, story)
