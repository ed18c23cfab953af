"""Commands of a workload before and after a snapshot of its volume; they are programs of this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import play_on
from tests.engines.host.volumesets.kit import ImageVolumeHarness
from tests.support.programs import only_root

pytestmark = only_root("only root mounts images")


class ExecRuntime(FakeRuntime):
    """A runtime whose containers are this machine, for hooks."""

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program to its end."""
        assert place.container == "main"
        done = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, timeout=timeout, check=False
        )
        return ExecResult(done.returncode, done.stdout + done.stderr)


async def begin(host: ImageVolumeHarness, pre: str, post: str) -> None:
    """Run ``db`` with these hooks, in which VOLUME is the directory of its volume."""
    tags = {"reconciler/pre-snapshot": pre, "reconciler/post-snapshot": post}
    await host.volumeset()
    await host.database(tags={tag: text.replace("VOLUME", str(host.path())) for tag, text in tags.items() if text})
    await host.running("db-0")


def host_with_hooks(path: Path) -> ImageVolumeHarness:
    """A host that runs them."""
    return ImageVolumeHarness(path, ExecRuntime)


def test_a_snapshot_is_taken_between_its_hooks(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host, json.dumps(["touch", f"{host.path()}/quiet"]), "rm VOLUME/quiet; touch VOLUME/after")
        await host.command("createVolumeSnapshot", snapshotName="one")
        assert set(host.content()) == {"after"}
        assert not host.path().with_name("0.d").joinpath("snapshot-hook.json").exists()
        await host.command("restoreVolume", command_id="c2", snapshotName="one")
        await host.running("db-0")
        assert set(host.content()) == {"quiet"}
        host.detach()

    play_on(lambda: host_with_hooks(tmp_path), story)


def test_a_hook_that_fails_before_means_no_snapshot_and_the_one_after_runs(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host, "echo the database is busy >&2; exit 3", "touch VOLUME/after")
        with pytest.raises(EngineError, match="before the snapshot in main of db-0 ended with 3: the database is busy"):
            await host.command("createVolumeSnapshot", snapshotName="one")
        assert set(host.content()) == {"after"}
        assert (await host.volumes())[0]["volumeSnapshots"] == []
        await host.volumeset(version=2, snapshots={"schedule": "* * * * *"})

        async def failing() -> bool:
            seen = await host.seen()
            return seen is not None and b"SnapshotFailing" in seen.state and b"the database is busy" in seen.state

        await host.eventually(failing, "a schedule makes it a condition", pace=3.0)
        host.detach()

    play_on(lambda: host_with_hooks(tmp_path), story)


def test_the_hook_after_runs_though_the_daemon_was_killed(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host, "", "echo again >> VOLUME/after")
        lock = json.loads((host.path().with_name("0.d") / "lock").read_text())
        opened = host.path().with_name("0.d") / "snapshot-hook.json"
        post = ["/bin/sh", "-c", f"echo again >> {host.path()}/after"]
        opened.write_text(json.dumps({"holder": lock["holder"], "container": "main", "post": post}))
        await host.restart()

        async def done() -> bool:
            return not opened.exists()

        await host.eventually(done, "the next daemon runs it", pace=3.0)
        assert host.content() == {"after": "again\n"}
        opened.write_text(json.dumps({"holder": "workload/shop/db replica former", "container": "main", "post": post}))
        await host.eventually(done, "that of a replica which has ended is forgotten", pace=3.0)
        assert host.content() == {"after": "again\n"}
        host.detach()

    play_on(lambda: host_with_hooks(tmp_path), story)


def test_a_hook_after_a_snapshot_that_fails_is_a_condition_and_repeated(tmp_path: Path) -> None:
    async def story(host: ImageVolumeHarness) -> None:
        await begin(host, "", "test -e VOLUME/allowed")
        taken = await host.command("createVolumeSnapshot", snapshotName="one")
        assert [each["name"] for each in taken["volumeSnapshots"]] == ["one"]

        async def failing() -> bool:
            return any(each.reason == Reason.VOLUME_CHECK_FAILED for each in host.news())

        await host.eventually(failing, "the watcher tries it again", pace=3.0)
        (host.path() / "allowed").touch()

        async def well() -> bool:
            seen = await host.seen()
            return seen is not None and str(seen.health) == "Healthy"

        await host.eventually(well, "it succeeds in the end", pace=3.0)
        host.detach()

    play_on(lambda: host_with_hooks(tmp_path), story)
