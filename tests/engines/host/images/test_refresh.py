"""Tags of workloads with supportDynamicTags: a moved tag is reported in time, and asked for once an interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engines.host.images.image_service import WorkloadImages
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from tests.engines.host.images.kit import API, APP, HOST, WEB, ImageServiceHarness, digest, pinned, played
from tests.support.registry import Reply, manifest, refused

FIVE_MINUTES = 300.0


@pytest.mark.parametrize("seed", range(5))
def test_a_moved_tag_is_reported_within_five_minutes(tmp_path: Path, seed: int) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.rng.seed(seed)
        await harness.ensure(dynamic=True)
        harness.run()
        await harness.clock.advance(1000.0 + seed * 37.0)
        assert harness.moved == []
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(FIVE_MINUTES)
        tag, new = harness.moved[0]
        assert (tag.key, tag.version, tag.container, tag.digest, new) == (WEB, 1, "main", digest("one"), digest("two"))

    played(tmp_path, story)


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_delays_no_report(tmp_path: Path, seed: int) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.rng.seed(seed)
        await harness.ensure(dynamic=True)
        harness.run()
        await harness.clock.advance(1000.0)
        asked = harness.registry.count()
        while harness.registry.count() == asked:
            await harness.clock.advance(1.0)
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(175.0)
        await harness.restart()
        assert await harness.ensure(dynamic=True) == pinned("one")
        await harness.clock.advance(FIVE_MINUTES - 175.0)
        assert len(harness.moved) == 1

    played(tmp_path, story)


def test_the_next_version_takes_the_digest_that_was_seen_without_another_request(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(FIVE_MINUTES)
        asked = harness.registry.count()
        assert await harness.ensure(version=2, follow=True, dynamic=True) == pinned("two")
        assert harness.registry.count() == asked
        assert await harness.ensure(version=1) == pinned("one")
        await harness.ensure(version=2, dynamic=True)
        moved = len(harness.moved)
        await harness.clock.advance(2 * FIVE_MINUTES)
        assert len(harness.moved) == moved

    played(tmp_path, story)


def test_the_same_version_follows_only_when_the_new_image_is_here(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(FIVE_MINUTES)
        harness.registry.delete("team/app", digest("two"))
        assert "manifest unknown" in str(await harness.refused(follow=True, dynamic=True))
        assert await harness.ensure(dynamic=True) == pinned("one")
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(FIVE_MINUTES)
        assert await harness.ensure(follow=True, dynamic=True) == pinned("two")
        await harness.restart()
        assert await harness.ensure(dynamic=True) == pinned("two")

    played(tmp_path, story)


def test_a_tag_that_is_not_followed_is_reported_again(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(4 * FIVE_MINUTES)
        assert 4 <= len(harness.moved) <= 6

    played(tmp_path, story)


def test_workloads_share_the_requests_for_a_tag(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        keys = [Key(Kind.WORKLOAD, "shop", f"w{number}") for number in range(20)]
        for key in keys:
            await harness.ensure(key=key, dynamic=True)
        harness.run()
        await harness.clock.advance(86_400.0)
        assert harness.registry.count("HEAD") <= 86_400 / 180 + 1
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(FIVE_MINUTES)
        assert {tag.key for tag, _ in harness.moved} == set(keys)

    played(tmp_path, story)


def test_an_answer_that_a_new_version_got_counts_for_all(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        harness.run()
        await harness.clock.advance(60.0)
        harness.registry.push("team/app", "1", manifest("two"))
        assert await harness.ensure(key=API, dynamic=True) == pinned("two")
        await harness.clock.advance(20.0)
        assert [tag.key for tag, _ in harness.moved] == [WEB]
        asked = harness.registry.count()
        await harness.clock.advance(150.0)
        assert harness.registry.count() == asked

    played(tmp_path, story)


def test_nothing_is_asked_for_what_names_a_digest_or_does_not_move(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(f"{HOST}/team/app@{digest('one')}", dynamic=True)
        await harness.ensure(key=API)
        harness.run()
        asked = harness.registry.count()
        await harness.clock.advance(3600.0)
        assert harness.registry.count() == asked

    played(tmp_path, story)


def test_a_workload_that_is_forgotten_or_no_longer_dynamic_is_not_followed(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        for key in (WEB, API):
            await harness.ensure(key=key, dynamic=True)
        harness.run()
        await harness.ensure(dynamic=False)
        harness.service.forget(API)
        asked = harness.registry.count()
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(3600.0)
        assert (harness.registry.count(), harness.moved) == (asked, [])

    played(tmp_path, story)


def test_a_registry_that_fails_is_reported_and_asked_once_an_interval(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        await harness.ensure(key=API, dynamic=True)
        harness.run()
        harness.registry.answer = lambda asked: refused(500, "UNKNOWN", "broken") if "manifests" in asked.path else None
        asked = harness.registry.count()
        await harness.clock.advance(3600.0)
        assert harness.registry.count() - asked <= 3600 / 180
        # The first answer has no words; all later ones have the same.
        assert [key for key, _ in harness.errors] == [API, WEB] * 2
        assert "broken" in harness.errors[-1][1]
        harness.registry.answer = lambda asked: None
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(2 * FIVE_MINUTES)
        assert {tag.key for tag, _ in harness.moved} == {WEB, API}

    played(tmp_path, story)


def test_a_pull_secret_that_is_broken_stops_no_other_workload(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.secrets["pull"] = SecretValue("docker", '{"auths": {}}')
        # The workload with the secret comes first.
        await harness.ensure(key=API, dynamic=True, pull_secrets=(Key(Kind.SECRET, "", "pull"),))
        await harness.ensure(dynamic=True)
        harness.run()
        await harness.clock.advance(FIVE_MINUTES)
        harness.secrets["pull"] = SecretValue("docker", "nonsense")
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(2 * FIVE_MINUTES)
        assert WEB in {tag.key for tag, _ in harness.moved}
        assert [key for key, _ in harness.errors] == [API]
        assert "is not a file of credentials" in harness.errors[0][1]

    played(tmp_path, story)


def test_a_registry_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(dynamic=True)
        harness.run()
        harness.registry.answer = lambda asked: Reply(429, {"Retry-After": "1800"})
        asked = len(harness.registry.asked)
        while len(harness.registry.asked) == asked:
            await harness.clock.advance(10.0)
        await harness.clock.advance(1790.0)
        assert len(harness.registry.asked) == asked + 1

    played(tmp_path, story)


def test_a_slow_registry_delays_no_other(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.push("slow", "1", manifest("slow"))
        images = {"main": APP, "side": f"{HOST}/slow:1"}
        await harness.service.ensure(WorkloadImages(WEB, 1, images, dynamic=True))
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        harness.registry.answer = lambda asked: refused(500, "UNKNOWN", "slow") if "slow" in asked.path else None
        await harness.clock.advance(FIVE_MINUTES)
        assert [tag.container for tag, _ in harness.moved] == ["main"]

    played(tmp_path, story)


@pytest.mark.parametrize("error", [ZeroDivisionError(), EngineError("no")])
def test_a_callback_that_fails_ends_nothing(tmp_path: Path, error: Exception) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        class BrokenList(list[object]):
            def append(self, each: object) -> None:
                super().append(each)
                raise error

        harness.moved = BrokenList()  # type: ignore[assignment]
        await harness.ensure(dynamic=True)
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(3 * FIVE_MINUTES)
        assert len(harness.moved) > 1

    played(tmp_path, story)
