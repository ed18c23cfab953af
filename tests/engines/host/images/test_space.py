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
from tests.engines.host.images.kit import API, HOST, WEB, ImageServiceHarness, pinned, played
from tests.support.programs import fill, small_disk
from tests.support.registry import manifest

DAY = 86_400.0


async def pulled(harness: ImageServiceHarness, mark: str, version: int = 1) -> str:
    """Let WEB have a version with an image of its own."""
    harness.registry.push("team/app", mark, manifest(mark))
    return await harness.ensure(f"{HOST}/team/app:{mark}", version)


def test_an_unused_image_is_removed_after_its_time(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.run()
        await harness.clock.advance(3 * DAY)
        assert harness.store.removed == []
        harness.service.forget(WEB)
        await harness.clock.advance(DAY - 1200.0)
        assert harness.store.removed == []
        await harness.clock.advance(2400.0)
        assert harness.store.removed == [pinned("one")]
        await harness.clock.advance(DAY)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_the_time_goes_on_over_a_restart(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.run()
        harness.service.forget(WEB)
        for _ in range(8):
            await harness.clock.advance(DAY / 8)
            assert harness.store.removed == []
            await harness.restart()
        await harness.clock.advance(1800.0)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_what_a_version_a_replica_or_a_rollback_refers_to_stays(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        first, second, third = [await pulled(harness, f"v{number}", number) for number in (1, 2, 3)]
        harness.run()
        harness.in_use.add(first)
        harness.service.forget(WEB, remaining=[3])
        await harness.clock.advance(3 * DAY)
        assert harness.store.removed == [second]
        harness.in_use.clear()
        await harness.clock.advance(3 * DAY)
        assert harness.store.removed == [second, first]
        assert list(harness.store.images) == [third]

    played(tmp_path, story, keep=DAY)


def test_an_image_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(0.9 * DAY)
        await harness.ensure(key=API)
        await harness.clock.advance(DAY)
        harness.service.forget(API)
        await harness.clock.advance(0.9 * DAY)
        assert harness.store.removed == []
        assert harness.store.pulls == [pinned("one")]

    played(tmp_path, story)


def test_above_the_budget_the_oldest_unused_images_go_at_once(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.size = 1 << 20
        names = [await pulled(harness, f"v{number}", number) for number in range(6)]
        harness.run()
        for number in range(1, 6):
            harness.service.forget(WEB, remaining=range(number, 6))
            await harness.clock.advance(601.0)
        assert harness.store.removed == names[:2]
        await harness.clock.advance(DAY / 2)
        assert list(harness.store.images) == names[2:]

    played(tmp_path, story, budget=3)


def test_with_a_budget_of_nothing_unused_images_go_at_once(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.size = 5 << 20
        await pulled(harness, "v1")
        harness.run()
        await harness.clock.advance(DAY)
        assert harness.store.removed == []
        harness.service.forget(WEB)
        await harness.clock.advance(601.0)
        assert len(harness.store.removed) == 1

    played(tmp_path, story, budget=0)


def test_images_of_others_are_never_removed(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.size = 1 << 30
        harness.store.add(f"{HOST}/other:1")
        harness.store.add(pinned("one"))
        assert await harness.ensure() == pinned("one")
        second = await pulled(harness, "two", 2)
        harness.store.add(second, f"{HOST}/team/app:mine")
        third = await pulled(harness, "three", 3)
        harness.store.add(third, pinned("three", f"{HOST}/somewhere/else"))
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(3 * DAY)
        assert harness.store.removed == []

    played(tmp_path, story, keep=0.0, budget=1)


def test_what_was_here_before_is_claimed_and_released(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.add(pinned("one"))
        for _ in range(2):
            await harness.ensure()
        assert harness.store.claims == [pinned("one")]
        harness.store.untag(pinned("one"))
        assert await harness.ensure() == pinned("one")
        assert harness.store.pulls == []
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(1200.0)
        assert (harness.store.removed, harness.store.images) == ([pinned("one")], {})

    played(tmp_path, story)


def test_what_others_want_too_is_only_released(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.store.add(pinned("one"), "localhost/mine:1")
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(DAY + 1200.0)
        assert (harness.store.removed, harness.store.claims) == ([], [])
        assert json.loads((tmp_path / "images" / "pulled.json").read_bytes()) == {"images": {}}

    played(tmp_path, story)


def test_an_image_of_two_repositories_goes_with_the_second(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.push("copy", "1", manifest("one"))
        copy = pinned("one", f"{HOST}/copy")
        await harness.ensure()
        await harness.ensure(f"{HOST}/copy:1", key=API)
        both = (pinned("one"), copy)
        for name in both:
            harness.store.add(name, *(each for each in both if each != name))
        harness.run()
        harness.service.forget(WEB)
        harness.service.forget(API)
        await harness.clock.advance(DAY + 1200.0)
        assert sorted(harness.store.removed) == sorted(both)

    played(tmp_path, story)


def test_a_claim_that_a_crash_prevented_is_made_up_for(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.store.claims.clear()
        await harness.restart()
        await harness.ensure()
        assert harness.store.claims == [pinned("one")]

    played(tmp_path, story)


def test_an_image_that_goes_before_it_is_claimed_is_pulled(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.add(pinned("one"))
        claim = harness.store.claim

        async def late(reference: str) -> None:
            harness.store.claim = claim  # type: ignore[method-assign]
            del harness.store.images[reference]
            await claim(reference)

        harness.store.claim = late  # type: ignore[method-assign]
        assert await harness.ensure() == pinned("one")
        assert harness.store.pulls == harness.store.claims == [pinned("one")]

    played(tmp_path, story)


def test_an_image_that_a_container_of_somebody_uses_is_tried_again(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.store.in_use.add(pinned("one"))
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(2 * DAY)
        assert harness.store.removed == []
        harness.store.in_use.clear()
        await harness.clock.advance(1200.0)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_nothing_is_removed_during_a_pull(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.run()
        harness.service.forget(WEB)
        harness.registry.push("team/app", "2", manifest("two"))
        harness.store.hold = asyncio.Event()
        waiting = asyncio.create_task(harness.ensure(f"{HOST}/team/app:2", key=API))
        await harness.clock.advance(2 * DAY)
        assert (harness.store.running, harness.store.removed) == (1, [])
        harness.store.hold.set()
        await waiting
        await harness.clock.advance(1200.0)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_images_of_a_pull_that_a_crash_interrupted_are_removed(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        def arrives(reference: str) -> None:
            harness.store.add(reference)
            raise ImageError("the daemon is killed here")

        harness.store.fail = arrives
        await harness.refused()
        harness.store.fail = lambda reference: None
        await harness.restart()
        harness.service.forget(WEB)
        harness.run()
        await harness.clock.advance(DAY + 1200.0)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_an_image_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        first, second = [await pulled(harness, f"v{number}", number) for number in (1, 2)]
        release = harness.store.release

        async def failing(reference: str) -> bool:
            if reference == first:
                raise ImageError("image used by a storage container")
            return await release(reference)

        harness.store.release = failing  # type: ignore[method-assign]
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(DAY + 1200.0)
        assert harness.store.removed == [second]

    played(tmp_path, story)


def test_what_is_gone_is_dropped_from_the_record(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        record = tmp_path / "images" / "pulled.json"
        assert list(json.loads(record.read_bytes())["images"]) == [pinned("one")]
        harness.service.forget(WEB)
        harness.store.images.clear()
        harness.run()
        await harness.clock.advance(601.0)
        assert json.loads(record.read_bytes()) == {"images": {}}

    played(tmp_path, story)


def test_a_clock_that_was_set_back_makes_no_image_older(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.run()
        harness.service.forget(WEB)
        await harness.clock.advance(1200.0)
        harness.clock.jump(-30 * DAY)
        await harness.clock.advance(DAY - 1800.0)
        assert harness.store.removed == []
        await harness.clock.advance(3600.0)
        assert harness.store.removed == harness.expired == [pinned("one")]

    played(tmp_path, story)


def test_a_store_that_fails_stops_no_later_sweep(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.service.forget(WEB)
        listed, broken = harness.store.list, [ImageError("gone"), ZeroDivisionError()]

        async def failing() -> list[object]:
            if broken:
                raise broken.pop()
            return await listed()  # type: ignore[return-value]

        harness.store.list = failing  # type: ignore[method-assign, assignment]
        harness.run()
        await harness.clock.advance(DAY + 3000.0)
        assert harness.store.removed == [pinned("one")]

    played(tmp_path, story)


def test_claims_whose_record_was_lost_end(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        await harness.service.close()
        shutil.rmtree(tmp_path / "images")
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.restart()
        await harness.ensure()
        harness.run()
        await harness.clock.advance(601.0)
        assert harness.store.claims == [pinned("two")]

    played(tmp_path, story)


@pytest.mark.parametrize("turns", range(24))
def test_a_kill_at_any_moment_leaves_nothing_behind(tmp_path: Path, turns: int) -> None:
    """The daemon is killed some turns of the loop after a version was asked for; the next one continues."""

    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.push("side", "1", manifest("side"))
        workload_images = WorkloadImages(WEB, 1, {"main": f"{HOST}/team/app:1", "side": f"{HOST}/side:1"})
        asked = asyncio.create_task(harness.service.ensure(workload_images))
        for _ in range(turns):
            await asyncio.sleep(0)
        shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
        images, claims = dict(harness.store.images), list(harness.store.claims)
        await harness.close()
        await asyncio.wait([asked])

        other = ImageServiceHarness(tmp_path / "two")
        other.registry.push("team/app", "1", manifest("moved"))
        other.registry.push("side", "1", manifest("side"))
        other.store.images, other.store.claims = images, claims
        pins = other.service.find_pins(WEB, 1)
        before = {name: pin.pinned for name, pin in pins.containers.items()} if pins is not None else {}
        found = await other.service.ensure(workload_images)
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
    async def story(harness: ImageServiceHarness) -> None:
        await pulled(harness, "used")
        old = await pulled(harness, "old", 2)
        harness.service.forget(WEB, remaining=[1])
        sweep = asyncio.create_task(harness.service._space.sweep(0.0, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
        images, claims = dict(harness.store.images), list(harness.store.claims)
        await sweep
        assert harness.store.removed == [old]

        other = ImageServiceHarness(tmp_path / "two")
        other.store.images, other.store.claims = images, claims
        other.run()
        await other.clock.advance(DAY + 1800.0)
        assert list(other.store.images) == other.store.claims == [pinned("used")]
        await other.close()

    (tmp_path / "one").mkdir()
    played(tmp_path / "one", story)


def test_a_full_disk_is_an_error_and_the_next_try_works(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:

        async def story(harness: ImageServiceHarness) -> None:
            filler = fill(disk)
            for _ in range(2):
                with pytest.raises(EngineError) as error:
                    await harness.ensure()
                assert error.value.reason is Reason.DISK_FULL
            assert harness.store.pulls == []
            filler.unlink()
            assert await harness.ensure() == pinned("one")
            assert harness.registry.count() == 1

        played(disk, story)


def test_images_are_inspected_and_pulled_again_at_the_same_time(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        marks = ("v1", "v2", "v3")
        for mark in marks:
            harness.registry.push("team/app", mark, manifest(mark))
        images = WorkloadImages(WEB, 1, {mark: f"{HOST}/team/app:{mark}" for mark in marks})
        await harness.service.ensure(images)
        harness.store.most = harness.store.most_inspected = 0
        await harness.service.ensure(images)
        assert harness.store.most_inspected == len(marks)
        harness.store.images.clear()
        harness.run()
        await harness.clock.advance(SWEEP_SECONDS)
        assert [*harness.store.images] == [pinned(mark) for mark in marks]
        assert harness.store.most == len(marks)

    played(tmp_path, story)
