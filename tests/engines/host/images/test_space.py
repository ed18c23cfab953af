"""Removal of images: only ours, only unused ones, the oldest first, never during a pull."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from reconciler.engines.host.images.image_service import WorkloadImages
from reconciler.engines.host.images.space import SWEEP_SECONDS
from reconciler.engines.workload.image_reference import ImageError
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.images.kit import API, HOST, WEB, Stage, pinned, played
from tests.support.programs import fill, small_disk
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
        assert stage.store.removed == names[:2]
        await stage.clock.advance(DAY / 2)
        assert list(stage.store.images) == names[2:]

    played(tmp_path, story, budget=3)


def test_with_a_budget_of_nothing_unused_images_go_at_once(tmp_path: Path) -> None:
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


def test_images_of_a_pull_that_a_crash_interrupted_are_removed(tmp_path: Path) -> None:
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


def test_an_image_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, second = [await pulled(stage, f"v{number}", number) for number in (1, 2)]
        release = stage.store.release

        async def failing(reference: str) -> bool:
            if reference == first:
                raise ImageError("image used by a storage container")
            return await release(reference)

        stage.store.release = failing  # type: ignore[method-assign]
        stage.run()
        stage.service.forget(WEB)
        await stage.clock.advance(DAY + 1200.0)
        assert stage.store.removed == [second]

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
        assert stage.store.removed == stage.expired == [pinned("one")]

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


def test_claims_whose_record_was_lost_end(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.ensure()
        await stage.service.close()
        shutil.rmtree(tmp_path / "images")
        stage.registry.push("team/app", "1", manifest("two"))
        await stage.restart()
        await stage.ensure()
        stage.run()
        await stage.clock.advance(601.0)
        assert stage.store.claims == [pinned("two")]

    played(tmp_path, story)


@pytest.mark.parametrize("turns", range(24))
def test_a_kill_at_any_moment_leaves_nothing_behind(tmp_path: Path, turns: int) -> None:
    """The daemon is killed some turns of the loop after a version was asked for; the next one continues."""

    async def story(stage: Stage) -> None:
        stage.registry.push("side", "1", manifest("side"))
        wanted = WorkloadImages(WEB, 1, {"main": f"{HOST}/team/app:1", "side": f"{HOST}/side:1"})
        asked = asyncio.create_task(stage.service.ensure(wanted))
        for _ in range(turns):
            await asyncio.sleep(0)
        shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
        images, claims = dict(stage.store.images), list(stage.store.claims)
        await stage.close()
        await asyncio.wait([asked])

        other = Stage(tmp_path / "two")
        other.registry.push("team/app", "1", manifest("moved"))
        other.registry.push("side", "1", manifest("side"))
        other.store.images, other.store.claims = images, claims
        pins = other.service.find_pins(WEB, 1)
        before = {name: pin.pinned for name, pin in pins.containers.items()} if pins is not None else {}
        found = await other.service.ensure(wanted)
        assert before.items() <= found.items()
        other.service.forget(WEB)
        other.run()
        await other.clock.advance(DAY + 1800.0)
        assert (other.store.images, other.store.claims) == ({}, [])
        await other.close()

    (tmp_path / "one").mkdir()
    played(tmp_path / "one", story)


@pytest.mark.parametrize("turns", range(14))
def test_a_kill_during_a_removal_leaves_nothing_behind_either(tmp_path: Path, turns: int) -> None:
    async def story(stage: Stage) -> None:
        await pulled(stage, "used")
        old = await pulled(stage, "old", 2)
        stage.service.forget(WEB, remaining=[1])
        sweep = asyncio.create_task(stage.service._space.sweep(0.0, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
        images, claims = dict(stage.store.images), list(stage.store.claims)
        await sweep
        assert stage.store.removed == [old]

        other = Stage(tmp_path / "two")
        other.store.images, other.store.claims = images, claims
        other.run()
        await other.clock.advance(DAY + 1800.0)
        assert list(other.store.images) == other.store.claims == [pinned("used")]
        await other.close()

    (tmp_path / "one").mkdir()
    played(tmp_path / "one", story)


def test_a_full_disk_is_an_error_and_the_next_try_works(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:

        async def story(stage: Stage) -> None:
            filler = fill(disk)
            for _ in range(2):
                with pytest.raises(EngineError) as error:
                    await stage.ensure()
                assert error.value.reason is Reason.DISK_FULL
            assert stage.store.pulls == []
            filler.unlink()
            assert await stage.ensure() == pinned("one")
            assert stage.registry.count() == 1

        played(disk, story)


def test_images_are_inspected_and_pulled_again_at_the_same_time(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        marks = ("v1", "v2", "v3")
        for mark in marks:
            stage.registry.push("team/app", mark, manifest(mark))
        wanted = WorkloadImages(WEB, 1, {mark: f"{HOST}/team/app:{mark}" for mark in marks})
        await stage.service.ensure(wanted)
        stage.store.most = stage.store.most_inspected = 0
        await stage.service.ensure(wanted)
        assert stage.store.most_inspected == len(marks)
        stage.store.images.clear()
        stage.run()
        await stage.clock.advance(SWEEP_SECONDS)
        assert [*stage.store.images] == [pinned(mark) for mark in marks]
        assert stage.store.most == len(marks)

    played(tmp_path, story)
