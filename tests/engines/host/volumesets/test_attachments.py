"""Volumes of replicas: attached at the start, detached at the end, in the status, and only deleted on request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.volumes.layout import VolumeFiles
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.attachments import Attachments, holder_name
from reconciler.engines.volumes import VolumeId
from reconciler.planning.plan import Action
from tests.engines.host.signals import RecordedSignals
from tests.engines.host.volumesets.kit import DB, SET, VolumeHarness, play
from tests.support.clock import FakeClock
from tests.support.plans import step


def holder(host: VolumeHarness, index: int = 0) -> str:
    """What the lock of a volume names."""
    lock = VolumeFiles(host.root, "shop", "data", str(index)).read_lock()
    return lock.holder if lock is not None else ""


def test_a_replica_gets_its_volume_at_its_start_and_releases_it_at_its_end(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        assert await host.volumes() == []
        await host.database(replicas=2)
        await host.running("db-0", "db-1")
        assert [holder(host, index) for index in (0, 1)] == [holder_name(DB, name) for name in ("db-0", "db-1")]
        assert [(each["lifecycle"], each["currentSize"]) for each in await host.volumes()] == [("bound", 10)] * 2
        await host.database(version=2, replicas=1)
        await host.running("db-0")
        assert (holder(host, 0), holder(host, 1)) == (holder_name(DB, "db-0"), "")
        assert await host.lifecycles() == ["bound", "unbound"]

        async def unused() -> bool:
            await host.drop(DB)
            return await host.lifecycles() == ["unused", "unused"]

        await host.eventually(unused, "the volumes are unused")
        assert holder(host) == ""

    play(tmp_path, story)


def test_the_daemon_finds_again_what_is_attached(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        (host.path() / "file").write_text("x")
        await host.restart()
        await host.running("db-0")
        assert (host.starts(), holder(host), host.content()) == (1, holder_name(DB, "db-0"), {"file": "x"})
        await host.database(version=2)

        async def replaced() -> bool:
            return host.starts() == 2

        await host.eventually(replaced, "it starts again")
        assert host.content() == {"file": "x"}

    play(tmp_path, story)


async def test_the_volumes_of_replicas_that_are_gone_are_free_again(tmp_path: Path) -> None:
    store = VolumeStore(tmp_path, "directory", FakeClock())
    there, gone = VolumeId(SET, 0), VolumeId(SET, 1)
    for volume, name in ((there, "db-0"), (gone, "db-1")):
        store.attach(volume, VolumeSpec(10), holder_name(DB, name), Owner())
    attachments = Attachments(store, RecordedSignals(), lambda _: asyncio.sleep(0))
    await attachments.open()
    await attachments.prune({holder_name(DB, "db-0")})
    assert store.holders() == attachments.list_attached(SET) == {there: holder_name(DB, "db-0")}


def test_a_volume_of_a_dead_replica_that_cannot_be_detached_closes_nothing_else(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.ask(1)

        async def both() -> bool:
            return [each.ready for each in host.replicas()] == [True] * 2

        await host.eventually(both, "both run")
        await host.record()
        await host.engine.close()
        # The replica is gone with its file, as after a power cut.
        for container_id in host.programs.places():
            if container_id.key == DB:
                host.programs.end(container_id, 137)
                del host.programs.running[container_id]
        for file in (host.root / "replicas/shop/db").iterdir():
            file.unlink()
        record = host.path().with_name("0.d") / "volume.json"
        former = record.read_bytes()
        record.write_bytes(b"garbage")
        await host.restart()

        async def waits() -> bool:
            return any("volume.json cannot be read" in each.message for each in host.news() if each.key == DB)

        await host.eventually(waits, "its replica waits, and says why")
        assert await host.lifecycles() == ["repairing"]
        assert any(each.ready for each in host.replicas() if each.key != DB), "all others run"
        record.write_bytes(former)
        await host.database(version=2, name="other")
        await host.database(version=2, mounts=False)

        async def handed_over() -> bool:
            return holder(host) == "workload/shop/other replica other-0"

        await host.eventually(handed_over, "it is free once it can be read")

    play(tmp_path, story)


def test_another_workload_gets_a_volume_only_after_the_former_one(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        await host.database(name="other")

        async def refused() -> bool:
            return any("is attached to workload/shop/db replica db-0" in each.message for each in host.news())

        await host.eventually(refused, "the second attach is refused")
        assert host.starts("other-0") == 0
        assert host.replica("other-0").containers[0].restarts == 0, "it waits, and has not failed"
        await host.database(version=2, mounts=False)

        async def handed_over() -> bool:
            return holder(host) == "workload/shop/other replica other-0"

        await host.eventually(handed_over, "it is handed over")
        await host.running("db-0", "other-0")

    play(tmp_path, story)


def test_a_replica_waits_for_a_volume_set_that_is_not_applied_yet(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.database()

        async def reported() -> bool:
            return any("there is no volumeset/shop/data" in each.message for each in host.news())

        await host.eventually(reported, "what is missing is an event")
        await host.volumeset()
        await host.running("db-0")

    play(tmp_path, story)


def test_a_deleted_volume_set_waits_for_its_replicas_and_leaves_a_final_snapshot(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        (host.path() / "file").write_text("x")
        assert set((await host.drop(SET)).values()) == {"waiting/Terminating"}
        assert host.content() == {"file": "x"}
        await host.database(version=2, mounts=False)

        async def dropped() -> bool:
            return set((await host.drop(SET)).values()) == {"applied"}

        await host.eventually(dropped, "it is deleted")
        assert (await host.seen(), host.path().exists()) == (None, False)
        [final] = (host.root / "deleted-volumes/shop/data").iterdir()
        assert (final / "data/file").read_text() == "x"

    play(tmp_path, story)


def test_a_volume_set_without_final_snapshots_leaves_nothing(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset(snapshots={"createFinalSnapshot": False})
        await host.database()
        await host.running("db-0")
        await host.database(version=2, mounts=False)

        async def dropped() -> bool:
            return set((await host.drop(SET)).values()) == {"applied"}

        await host.eventually(dropped, "it is deleted")
        assert not (host.root / "deleted-volumes").exists()

    play(tmp_path, story)


def test_a_replaced_volume_set_gives_its_replicas_new_volumes(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        (host.path() / "file").write_text("x")

        async def replaced() -> bool:
            ended = await host.volumeset(version=2, action=Action.REPLACE, fileSystemType="xfs")
            return set(ended.values()) == {"applied"}

        await host.eventually(replaced, "it is replaced")
        await host.running("db-0")
        assert (host.content(), host.starts()) == ({}, 2)
        assert host.replica("db-0").containers[0].restarts == 0

    play(tmp_path, story)


def test_a_replacement_that_a_crash_interrupts_is_finished_once(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        (host.path() / "file").write_text("x")
        await host.database(version=2, suspend=True)
        await host.running()
        body = {"kind": "volumeset", "name": "data", "spec": {"initialCapacity": 10, "fileSystemType": "xfs"}}
        replacement = step(str(SET), action=Action.REPLACE, version=2, body=body, engine="host")
        marker = host.root / "replaced-volumesets.json"
        await host.meanwhile(host.engine.perform(replacement))
        # The daemon is killed before it writes down that the former data are deleted.
        marker.write_text(marker.read_text().replace("true", "false"))
        await host.restart()
        await host.database(version=3)
        for _ in range(20):
            await host.time.advance(1.0)
            await asyncio.sleep(0.001)
        assert not host.path().exists(), "no replica gets a volume that would be deleted again"
        assert (await host.meanwhile(host.engine.perform(replacement))).result == "applied"
        await host.eventually(lambda: _has_volume(host), "the replica gets a new volume")
        (host.path() / "file").write_text("acknowledged")
        # Killed again, before the outcome is recorded: the step is repeated.
        await host.restart()
        assert (await host.meanwhile(host.engine.perform(replacement))).result == "applied"
        await host.eventually(lambda: _has_volume(host), "the replica goes on")
        assert host.content() == {"file": "acknowledged"}

    play(tmp_path, story)


async def _has_volume(host: VolumeHarness) -> bool:
    return holder(host) != "" and host.path().exists()


def test_what_this_host_gives_is_in_the_conditions_of_the_workload(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database()
        await host.running("db-0")
        seen = await host.seen(DB)
        assert seen is not None
        [condition] = json.loads(seen.state)["status"]["conditions"]
        assert condition["type"] == "NotEnforced"
        assert "no performance class" in condition["message"]
        assert "no limit of their size but the disk" in condition["message"]

    play(tmp_path, story)
