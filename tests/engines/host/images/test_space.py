"""Removal of images: only ours, only unused ones, the oldest first, never during a pull."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from reconciler.engines.host.images.protocol import ImageError
from tests.engines.host.images.kit import API, HOST, WEB, Stage, pinned, played
from tests.support.registry import manifest

DAY = 86_400.0


async def pulled(stage: Stage, mark: str, version: int = 1) -> str:
    """Let WEB have a version with an image of its own."""
    stage.registry.push("team/app", mark, manifest(mark))
    return await stage.ensure(f"{HOST}/team/app:{mark}", version)


def test_an_unused_image_is_removed_after_its_time(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.run()
        await stage.clock.advance(3 * DAY)
        assert stage.store.removed == []
        stage.service.forget(WEB)
        await stage.clock.advance(DAY - 1200.0)
        assert stage.store.removed == []
        await stage.clock.advance(2400.0)
        assert stage.store.removed == [pinned("one")]
        await stage.clock.advance(DAY)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_the_time_goes_on_over_a_restart(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.run()
        stage.service.forget(WEB)
        for _ in range(8):
            await stage.clock.advance(DAY / 8)
            assert stage.store.removed == []
            await stage.restart()
        await stage.clock.advance(1800.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_what_a_version_a_replica_or_a_rollback_refers_to_stays(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, second, third = [await pulled(stage, f"v{number}", number) for number in (1, 2, 3)]
        stage.run()
        stage.in_use.add(first)
        stage.service.forget(WEB, remaining=[3])
        await stage.clock.advance(3 * DAY)
        assert stage.store.removed == [second]
        stage.in_use.clear()
        await stage.clock.advance(3 * DAY)
        assert stage.store.removed == [second, first]
        assert list(stage.store.images) == [third]

    played(tmp_path, story, keep=DAY)


def test_an_image_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(0.9 * DAY)
        await stage.ensure(key=API)
        await stage.clock.advance(DAY)
        stage.service.forget(API)
        await stage.clock.advance(0.9 * DAY)
        assert stage.store.removed == []
        assert stage.store.pulls == [pinned("one")]

    played(tmp_path, story)


def test_above_the_budget_the_oldest_unused_images_go_at_once(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.store.size = 1 << 20
        names = [await pulled(stage, f"v{number}", number) for number in range(6)]
        stage.run()
        for number in range(1, 6):
            stage.service.forget(WEB, remaining=range(number, 6))
            await stage.clock.advance(601.0)
        assert stage.store.removed == names[:3]
        await stage.clock.advance(DAY / 2)
        assert list(stage.store.images) == names[3:]

    played(tmp_path, story, budget=3)


def test_a_budget_takes_nothing_that_is_in_use(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.store.size = 5 << 20
        await pulled(stage, "v1")
        stage.run()
        await stage.clock.advance(DAY)
        assert stage.store.removed == []
        stage.service.forget(WEB)
        await stage.clock.advance(601.0)
        assert len(stage.store.removed) == 1

    played(tmp_path, story, budget=0)


def test_images_of_others_are_never_removed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.store.size = 1 << 30
        stage.store.add(f"{HOST}/other:1")
        stage.store.add(pinned("one"))
        assert await stage.ensure() == pinned("one")
        second = await pulled(stage, "two", 2)
        stage.store.add(second, f"{HOST}/team/app:mine")
        third = await pulled(stage, "three", 3)
        stage.store.add(third, pinned("three", f"{HOST}/somewhere/else"))
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(3 * DAY)
        assert stage.store.removed == []

    played(tmp_path, story, keep=0.0, budget=1)


def test_what_was_here_before_is_claimed_and_released(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.store.add(pinned("one"))
        for _ in range(2):
            await stage.ensure()
        assert stage.store.claims == [pinned("one")]
        stage.store.untag(pinned("one"))
        assert await stage.ensure() == pinned("one")
        assert stage.store.pulls == []
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(1200.0)
        assert (stage.store.removed, stage.store.images) == ([pinned("one")], {})

    played(tmp_path, story)


def test_what_others_want_too_is_only_released(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.store.add(pinned("one"), "localhost/mine:1")
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(DAY + 1200.0)
        assert (stage.store.removed, stage.store.claims) == ([], [])
        assert json.loads((tmp_path / "images" / "pulled.json").read_bytes()) == {"images": {}}

    played(tmp_path, story)


def test_an_image_of_two_repositories_goes_with_the_second(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.registry.push("copy", "1", manifest("one"))
        copy = pinned("one", f"{HOST}/copy")
        await stage.ensure()
        await stage.ensure(f"{HOST}/copy:1", key=API)
        both = (pinned("one"), copy)
        for name in both:
            stage.store.add(name, *(each for each in both if each != name))
        stage.run()
        stage.service.forget(WEB)
        stage.service.forget(API)
        await stage.clock.advance(DAY + 1200.0)
        assert sorted(stage.store.removed) == sorted(both)

    played(tmp_path, story)


def test_a_claim_that_a_crash_prevented_is_made_up_for(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.store.claims.clear()
        await stage.restart()
        await stage.ensure()
        assert stage.store.claims == [pinned("one")]

    played(tmp_path, story)


def test_an_image_that_goes_before_it_is_claimed_is_pulled(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.store.add(pinned("one"))
        claim = stage.store.claim

        async def late(reference: str) -> None:
            stage.store.claim = claim  # type: ignore[method-assign]
            del stage.store.images[reference]
            await claim(reference)

        stage.store.claim = late  # type: ignore[method-assign]
        assert await stage.ensure() == pinned("one")
        assert stage.store.pulls == stage.store.claims == [pinned("one")]

    played(tmp_path, story)


def test_an_image_that_a_container_of_somebody_uses_is_tried_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.store.in_use.add(pinned("one"))
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(2 * DAY)
        assert stage.store.removed == []
        stage.store.in_use.clear()
        await stage.clock.advance(1200.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_nothing_is_removed_during_a_pull(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.run()
        stage.service.forget(WEB)
        stage.registry.push("team/app", "2", manifest("two"))
        stage.store.hold = asyncio.Event()
        waiting = asyncio.create_task(stage.ensure(f"{HOST}/team/app:2", key=API))
        await stage.clock.advance(2 * DAY)
        assert (stage.store.running, stage.store.removed) == (1, [])
        stage.store.hold.set()
        await waiting
        await stage.clock.advance(1200.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_a_pull_that_a_crash_interrupted_leaves_nothing_that_nobody_removes(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        def arrives(reference: str) -> None:
            stage.store.add(reference)
            raise ImageError("the daemon is killed here")

        stage.store.fail = arrives
        await stage.refused()
        stage.store.fail = lambda reference: None
        await stage.restart()
        stage.service.forget(WEB)
        stage.run()
        await stage.clock.advance(DAY + 1200.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_what_is_gone_is_dropped_from_the_record(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        record = tmp_path / "images" / "pulled.json"
        assert list(json.loads(record.read_bytes())["images"]) == [pinned("one")]
        stage.service.forget(WEB)
        stage.store.images.clear()
        stage.run()
        await stage.clock.advance(601.0)
        assert json.loads(record.read_bytes()) == {"images": {}}

    played(tmp_path, story)


def test_a_clock_that_was_set_back_makes_no_image_older(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(1200.0)
        stage.clock.jump(-30 * DAY)
        await stage.clock.advance(DAY - 1800.0)
        assert stage.store.removed == []
        await stage.clock.advance(3600.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_a_store_that_fails_stops_no_later_sweep(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        stage.service.forget(WEB)
        listed, broken = stage.store.list, [ImageError("gone"), ZeroDivisionError()]

        async def failing() -> list[object]:
            if broken:
                raise broken.pop()
            return await listed()  # type: ignore[return-value]

        stage.store.list = failing  # type: ignore[method-assign, assignment]
        stage.run()
        await stage.clock.advance(DAY + 3000.0)
        assert stage.store.removed == [pinned("one")]

    played(tmp_path, story)
