"""Comments on pull requests of a source that was removed from the settings."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.forges.followed import list_left_repositories, remember_repository
from reconciler.notifications.forges.follower import LeftPulls
from tests.notifications.forges.scene import Scene, refuse_comments
from tests.notifications.forges.setup import KINDS
from tests.notifications.forges.stub_forge import run_stub
from tests.support.pipeline import PipelineHarness


@pytest.mark.parametrize("kind", KINDS)
async def test_comments_of_a_source_that_was_removed_have_no_plan(
    kind: str, shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub(kind) as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        scene.push(6, "other")
        await scene.follower.update_comments()
        other = msgspec.structs.replace(shop.settings.sources[0], name="other")
        settings = msgspec.structs.replace(shop.settings, sources=(other,))
        repository = scene.set.repositories["shop"]
        remember_repository(shop.settings, repository)
        assert list_left_repositories(shop.settings) == []
        assert list_left_repositories(settings) == [repository]
        stub.lost = {len(stub.requests) + 1}
        # The daemon is restarted after each failure.
        for _ in range(3):
            with contextlib.suppress(SendFailed):
                await LeftPulls(settings, repository, scene.set.forges["shop"], SystemClock()).update_comments()
        for number in (5, 6):
            assert "The source `shop` was removed from the settings" in scene.body(number)
        assert list_left_repositories(settings) == []
        written = len(stub.requests)
        await LeftPulls(settings, repository, scene.set.forges["shop"], SystemClock()).update_comments()
        assert len(stub.requests) == written
        # It comes back.
        scene.restart()
        await scene.follower.update_comments()
        for number in (5, 6):
            assert "1 to create" in scene.body(number)
        assert not stub.faults
        await scene.set.close()


async def test_a_source_that_is_back_before_all_comments_are_changed_shows_its_plans(
    shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        scene.push(6, "other")
        await scene.follower.update_comments()
        repository = scene.set.repositories["shop"]
        # The first one is written, and the daemon is killed before it knows.
        stub.lost = {len(stub.requests) + 1}
        with pytest.raises(SendFailed):
            await LeftPulls(shop.settings, repository, scene.set.forges["shop"], SystemClock()).update_comments()
        assert "removed" in scene.body(5)
        scene.restart()
        await scene.follower.update_comments()
        for number in (5, 6):
            assert "1 to create" in scene.body(number)
        await scene.set.close()


async def test_comments_that_are_locked_or_deleted_stop_no_other(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        scene.push(6, "other")
        await scene.follower.update_comments()
        stub.refuse = refuse_comments(stub, 5, 404)
        repository = scene.set.repositories["shop"]
        await LeftPulls(shop.settings, repository, scene.set.forges["shop"], SystemClock()).update_comments()
        assert "1 to create" in scene.body(5)
        assert "removed" in scene.body(6)
        await scene.set.close()
