"""Files that are deleted while an engine uses them."""

from __future__ import annotations

import shutil
from pathlib import Path

from reconciler.engines.host.decisions.replica import HookState
from tests.engines.host.kit import HostHarness, played


def test_files_of_replicas_that_are_lost_are_written_again(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        shutil.rmtree(tmp_path / "here/replicas")
        shutil.rmtree(tmp_path / "here/endpoints")
        await host.until(lambda found: [each.version for each in found if each.ready] == [1])
        await host.until(lambda _: (tmp_path / "here/endpoints/shop/web.json").exists())

    played(tmp_path, story)


def test_changes_that_the_next_daemon_finds_are_written(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.ask(1, "greeting", lifecycle={"postStart": {"exec": {"command": ["greet"]}}})
        await host.until(
            lambda replicas: [replica.containers[0].post_start for replica in replicas] == [HookState.RUNNING]
        )
        await host.restart()
        await host.until(
            lambda replicas: (
                [(replica.ready, replica.containers[0].post_start) for replica in replicas] == [(True, "done")]
            )
        )

    played(tmp_path, story)
