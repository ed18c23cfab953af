"""Images of workloads: a version runs the same bytes for ever, and each registry is asked as little as possible."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from reconciler.engines.host.images.image_service import WorkloadImages
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.reasons import Reason
from tests.engines.host.images.kit import API, APP, HOST, WEB, ImageServiceHarness, digest, pinned, played
from tests.support.registry import FakeRegistry, Reply, index, manifest, refused


def login(name: str) -> SecretValue:
    auth = base64.b64encode(f"{name}:{name}".encode()).decode()
    return SecretValue("docker", json.dumps({"auths": {HOST: {"auth": auth}}}))


def test_a_version_runs_the_digest_that_its_tag_meant_when_it_was_made(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        assert await harness.ensure() == pinned("one")
        harness.registry.push("team/app", "1", manifest("two"))
        await harness.clock.advance(3600.0)
        assert await harness.ensure() == pinned("one")
        await harness.restart()
        assert await harness.ensure() == pinned("one")
        assert harness.registry.count() == 1
        assert harness.store.pulls == [pinned("one")]

        assert await harness.ensure(version=2) == pinned("two")
        assert await harness.ensure(version=1) == pinned("one")

    played(tmp_path, story)


def test_a_version_needs_no_registry_once_its_image_is_here(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.registry.answer = lambda asked: Reply(cut=True)
        await harness.restart()
        assert await harness.ensure() == pinned("one")

    played(tmp_path, story)


def test_an_image_that_vanished_is_pulled_again_by_its_digest(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.registry.push("team/app", "1", manifest("two"))
        harness.store.images.clear()
        assert await harness.ensure() == pinned("one")
        assert harness.store.pulls == [pinned("one")] * 2
        assert harness.registry.count() == 1

    played(tmp_path, story)


def test_an_image_that_somebody_removed_by_force_comes_back(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        await harness.ensure(key=API)
        harness.run()
        harness.registry.push("team/app", "1", manifest("two"))
        harness.store.images.clear()
        await harness.clock.advance(601.0)
        assert list(harness.store.images) == harness.store.claims[-1:] == [pinned("one")]
        assert (harness.registry.count(), harness.errors) == (1, [])

        harness.registry.delete("team/app", digest("one"))
        harness.store.images.clear()
        harness.service.forget(API)
        await harness.clock.advance(3 * 601.0)
        assert harness.errors == [(WEB, f"the image {pinned('one')}: manifest unknown")]
        assert await harness.refused()

    played(tmp_path, story)


def test_an_image_whose_login_is_gone_stops_no_other_from_coming_back(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.secrets["pull"] = login("ann")
        await harness.ensure(pull_secrets=(Key(Kind.SECRET, "", "pull"),))
        harness.registry.push("other", "1", manifest("two"))
        await harness.ensure(f"{HOST}/other:1", key=API)
        harness.run()
        del harness.secrets["pull"]
        harness.store.images.clear()
        await harness.clock.advance(3 * 601.0)
        assert list(harness.store.images) == [pinned("two", f"{HOST}/other")]
        assert harness.errors == [(WEB, "secret/pull is not applied")]

    played(tmp_path, story)


def test_a_digest_in_the_manifest_is_not_asked_for(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        assert await harness.ensure(f"{APP}@{digest('one')}") == pinned("one")
        assert harness.registry.asked == []

    played(tmp_path, story)


def test_many_workloads_share_one_request_and_one_pull(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.hold = asyncio.Event()
        keys = [Key(Kind.WORKLOAD, "shop", f"w{number}") for number in range(20)]
        asked = [asyncio.create_task(harness.ensure(key=key)) for key in keys]
        await harness.clock.run_until_idle()
        harness.store.hold.set()
        assert set(await asyncio.gather(*asked)) == {pinned("one")}
        assert (harness.registry.count(), len(harness.store.pulls)) == (1, 1)

    played(tmp_path, story)


def test_four_images_are_pulled_at_once(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        for number in range(9):
            harness.registry.push("team/app", f"t{number}", manifest(f"{number}"))
        harness.store.hold = asyncio.Event()
        images = {f"c{number}": f"{HOST}/team/app:t{number}" for number in range(9)}
        asked = asyncio.create_task(harness.service.ensure(WorkloadImages(WEB, 1, images)))
        await harness.clock.run_until_idle()
        assert harness.store.running == 4
        harness.store.hold.set()
        assert await asked == {f"c{number}": pinned(f"{number}") for number in range(9)}
        assert harness.store.most == 4

    played(tmp_path, story)


def test_a_digest_is_pulled_once_at_a_time_under_several_names(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        for name in ("a", "b", "c"):
            harness.registry.push(name, "1", manifest("one"))
        images = {name: f"{HOST}/{name}:1" for name in ("a", "b", "c")}
        await harness.service.ensure(WorkloadImages(WEB, 1, images))
        assert (harness.store.most, len(harness.store.pulls)) == (1, 3)

    played(tmp_path, story)


def test_who_stops_waiting_stops_the_pull_only_as_the_last_one(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.hold = asyncio.Event()
        first, second = (asyncio.create_task(harness.ensure(key=key)) for key in (WEB, API))
        await harness.clock.run_until_idle()
        first.cancel()
        await harness.clock.run_until_idle()
        assert (first.cancelled(), harness.store.running) == (True, 1)
        second.cancel()
        await harness.clock.run_until_idle()
        assert (second.cancelled(), harness.store.running) == (True, 0)

        harness.store.hold = None
        assert await harness.ensure() == pinned("one")
        assert harness.registry.count() == 1

    played(tmp_path, story)


def test_closing_ends_a_pull_with_an_error_for_who_waits(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.hold = asyncio.Event()
        waiting = asyncio.create_task(harness.ensure())
        await harness.clock.run_until_idle()
        await harness.service.close()
        with pytest.raises(ImageError, match="the pull of an image was stopped"):
            await waiting

    played(tmp_path, story)


def test_a_digest_is_pinned_before_its_pull_so_a_crash_changes_nothing(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.hold = asyncio.Event()
        waiting = asyncio.create_task(harness.ensure())
        await harness.clock.run_until_idle()
        waiting.cancel()
        await harness.restart()
        harness.registry.push("team/app", "1", manifest("two"))
        harness.store.hold = None
        assert await harness.ensure() == pinned("one")
        assert harness.registry.count() == 1

    played(tmp_path, story)


def test_a_digest_that_was_deleted_before_its_first_pull_is_resolved_again(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        def moves(reference: str) -> None:
            harness.registry.push("team/app", "1", manifest("two"))
            harness.registry.delete("team/app", digest("one"))
            harness.store.fail = lambda reference: None

        harness.store.fail = moves
        assert "manifest unknown" in str(await harness.refused())
        assert await harness.ensure() == pinned("two")

    played(tmp_path, story)


def test_a_digest_that_ran_is_never_replaced_even_if_it_was_deleted(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.registry.push("team/app", "1", manifest("two"))
        harness.registry.delete("team/app", digest("one"))
        harness.store.images.clear()
        for _ in range(2):
            assert f"the image {pinned('one')}: manifest unknown" in str(await harness.refused())
            await harness.clock.advance(1000.0)
        assert harness.registry.count() == 1

    played(tmp_path, story)


def test_a_tag_that_moves_between_request_and_pull_changes_nothing(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.fail = lambda reference: harness.registry.push("team/app", "1", manifest("two")) and None
        assert await harness.ensure() == pinned("one")

    played(tmp_path, story)


def test_each_container_has_its_image_and_those_that_could_be_resolved_are_not_asked_for_again(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        images = WorkloadImages(WEB, 1, {"main": APP, "side": f"{HOST}/side:1"})
        for _ in range(3):
            with pytest.raises(ImageError, match=f"{HOST}/side:1: {HOST} answers 404"):
                await harness.service.ensure(images)
            await harness.clock.advance(400.0)
        assert [each.path.partition("/manifests")[0] for each in harness.registry.asked].count("/v2/team/app") == 1
        harness.registry.push("side", "1", manifest("side"))
        found = await harness.service.ensure(images)
        assert found == {"main": pinned("one"), "side": pinned("side", f"{HOST}/side")}

    played(tmp_path, story)


def test_an_image_of_the_org_is_that_of_its_registry(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        assert await harness.ensure("/org/acme/image/app:1") == pinned("one")
        error = await harness.refused("Nginx:1")
        assert (error.reason, error.retry) == (Reason.INVALID_IMAGE_NAME, False)

    played(tmp_path, story, registry=f"{HOST}/team")


FAILURES = [
    Reply(cut=True),
    refused(401, "UNAUTHORIZED", "who are you"),
    refused(403, "DENIED", "not you"),
    refused(404, "MANIFEST_UNKNOWN", "no such tag"),
    refused(429, "TOOMANYREQUESTS", "slow down"),
    refused(429, "TOOMANYREQUESTS", "slow down", Retry_After="60"),
    refused(500, "UNKNOWN", "broken"),
]
WORDS = ["cannot be reached as a registry", "who are you", "not you", "no such tag", "slow down", "slow down", "broken"]


@pytest.mark.parametrize(("reply", "words"), list(zip(FAILURES, WORDS, strict=True)))
def test_a_failing_registry_is_asked_once_an_interval_and_the_old_version_has_its_image(
    tmp_path: Path, reply: Reply, words: str
) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure(version=1)
        harness.registry.asked.clear()
        harness.registry.push("team/app", "2", manifest("two"))
        harness.registry.answer = lambda asked: reply if "manifests" in asked.path else None
        first = await harness.refused(f"{HOST}/team/app:2", version=2)
        assert first.reason is Reason.IMAGE_PULL_FAILED
        assert first.wait is not None
        assert 5.0 <= first.wait <= 66.0
        for _ in range(3):
            again = await harness.refused(f"{HOST}/team/app:2", version=2)
            assert str(again) == str(first)
            assert again.wait is not None
            assert 5.0 <= again.wait <= 66.0
        assert harness.registry.count() == 1
        assert await harness.ensure(version=1) == pinned("one")

        await harness.clock.advance(again.wait + 1.0)
        second = await harness.refused(f"{HOST}/team/app:2", version=2)
        assert f"the image {HOST}/team/app:2: {HOST} " in str(second)
        assert words in str(second)
        assert harness.registry.count() == 2

        harness.registry.answer = lambda asked: None
        await harness.clock.advance(300.0)
        assert await harness.ensure(f"{HOST}/team/app:2", version=2) == pinned("two")

    played(tmp_path, story)


def test_waits_double_up_to_five_minutes(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.delete("team/app", "1")
        for _ in range(3 * 360):
            await harness.clock.advance(10.0)
            await harness.refused()
        # In three hours: every 150 to 300 seconds, and a few more at the beginning.
        assert 36 <= harness.registry.count() <= 78

    played(tmp_path, story)


def test_a_registry_that_asks_for_a_pause_is_not_asked_for_any_image(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.answer = lambda asked: refused(429, "TOOMANYREQUESTS", "slow down", Retry_After="1000")
        await harness.refused()
        harness.registry.answer = lambda asked: None
        harness.registry.push("other", "1", manifest("two"))
        asked = len(harness.registry.asked)
        for _ in range(9):
            await harness.clock.advance(110.0)
            error = await harness.refused(f"{HOST}/other:1", version=2)
            assert f"the image {HOST}/other:1 is not asked for yet: {HOST} asked for a pause" in str(error)
        assert len(harness.registry.asked) == asked
        await harness.clock.advance(120.0)
        assert await harness.ensure(f"{HOST}/other:1", version=2) == pinned("two", f"{HOST}/other")

    played(tmp_path, story)


def test_another_login_is_tried_at_once(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.login = "ann:ann"
        harness.secrets["pull"] = login("bob")
        secrets = (Key(Kind.SECRET, "", "pull"),)
        assert "401 Unauthorized" in str(await harness.refused(pull_secrets=secrets))
        harness.secrets["pull"] = login("ann")
        assert await harness.ensure(pull_secrets=secrets) == pinned("one")
        assert harness.store.logins == [RegistryCredentials("ann", "ann")]

    played(tmp_path, story)


def test_a_workload_without_the_login_does_not_get_the_answer_of_another(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.login = "ann:ann"
        harness.secrets["pull"] = login("ann")
        await harness.ensure(pull_secrets=(Key(Kind.SECRET, "", "pull"),))
        assert "401 Unauthorized" in str(await harness.refused(key=API))

    played(tmp_path, story)


def test_a_pull_secret_that_cannot_be_read_stops_only_what_is_to_be_pulled(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.secrets["pull"] = login("ann")
        secrets = (Key(Kind.SECRET, "", "pull"),)
        await harness.ensure(pull_secrets=secrets)
        del harness.secrets["pull"]
        assert await harness.ensure(pull_secrets=secrets) == pinned("one")
        with pytest.raises(EngineError, match="secret/pull is not applied"):
            await harness.ensure(version=2, pull_secrets=secrets)

    played(tmp_path, story)


def test_an_index_without_this_platform_is_refused_before_the_pull(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.push("team/app", "1", index("linux/arm64", "windows/amd64"))
        error = await harness.refused()
        assert (error.reason, error.retry) == (Reason.IMAGE_PLATFORM_MISMATCH, False)
        assert "is made for linux/arm64, windows/amd64, and this host is linux/amd64" in str(error)
        assert (harness.store.pulls, harness.registry.count("GET")) == ([], 1)

    played(tmp_path, story)


def test_the_platforms_of_an_index_are_asked_for_once(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.registry.push("team/app", "1", index("linux/arm64", "linux/amd64"))
        harness.store.fail = lambda reference: (_ for _ in ()).throw(ImageError("no space left on device"))
        for _ in range(3):
            assert "no space left on device" in str(await harness.refused())
            await harness.clock.advance(400.0)
        assert (harness.registry.count("HEAD"), harness.registry.count("GET")) == (1, 1)

    played(tmp_path, story)


def test_a_single_image_for_another_processor_is_refused_after_its_pull(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.architecture = "s390x"
        for _ in range(2):
            error = await harness.refused()
            assert error.reason is Reason.IMAGE_PLATFORM_MISMATCH
            assert "made for linux/s390x, and this host is linux/amd64" in str(error)
        assert len(harness.store.pulls) == 1

    played(tmp_path, story)


def test_a_pull_that_failed_is_tried_again_by_its_digest_after_a_wait(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        harness.store.fail = lambda reference: (_ for _ in ()).throw(ImageError("Digest did not match"))
        for _ in range(4):
            assert "Digest did not match" in str(await harness.refused())
        assert len(harness.store.pulls) == 1
        harness.store.fail = lambda reference: None
        await harness.clock.advance(11.0)
        assert await harness.ensure() == pinned("one")
        assert (len(harness.store.pulls), harness.registry.count()) == (2, 1)

    played(tmp_path, story)


def test_an_image_of_this_host_is_pinned_and_never_asked_for(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        for _ in range(2):
            assert "the image localhost/app:1 is not on this host" in str(await harness.refused("localhost/app:1"))
        harness.store.build("localhost/app", "1", digest("one"))
        assert await harness.ensure("localhost/app:1", dynamic=True) == pinned("one", "localhost/app")
        harness.store.build("localhost/app", "1", digest("two"))
        assert await harness.ensure("localhost/app:1") == pinned("one", "localhost/app")
        assert await harness.ensure("localhost/app:1", version=2) == pinned("two", "localhost/app")
        del harness.store.images[pinned("one", "localhost/app")]
        assert "is not on this host: build or load it here" in str(await harness.refused("localhost/app:1"))
        assert (harness.registry.asked, harness.store.pulls) == ([], [])

    played(tmp_path, story)


def test_the_digests_of_versions_are_forgotten_with_them(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        for version in (1, 2, 3):
            await harness.ensure(version=version)
        await harness.ensure(key=API)
        harness.service.forget(WEB, remaining=[2, 3])
        assert [harness.service.find_pins(WEB, version) is None for version in (1, 2, 3)] == [True, False, False]
        await harness.restart()
        assert [harness.service.find_pins(WEB, version) is None for version in (1, 2, 3)] == [True, False, False]
        harness.service.forget_others([API])
        await harness.restart()
        assert harness.service.find_pins(WEB, 3) is None
        found = harness.service.find_pins(API, 1)
        assert found is not None
        assert [(pin.image, pin.pinned) for pin in found.containers.values()] == [(APP, pinned("one"))]

    played(tmp_path, story)


def test_another_image_under_the_same_version_is_resolved(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        harness.registry.push("team/app", "2", manifest("two"))
        assert await harness.ensure(f"{HOST}/team/app:2") == pinned("two")

    played(tmp_path, story)


def test_damaged_files_cost_no_more_than_another_request(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness) -> None:
        await harness.ensure()
        for path in tmp_path.rglob("*.json"):
            assert path.stat().st_mode & 0o777 == 0o600
            path.write_bytes(b'{"broken')
        await harness.restart()
        assert await harness.ensure() == pinned("one")
        assert harness.registry.count() == 2

    played(tmp_path, story)


def test_a_registry_without_sockets_answers_as_one_with_them(tmp_path: Path) -> None:
    """The double that the other tests use is the one that test_registry.py asks over the network."""

    async def story(harness: ImageServiceHarness) -> None:
        assert isinstance(harness.registry, FakeRegistry)
        await harness.ensure()
        assert [(each.method, each.path) for each in harness.registry.asked] == [
            ("GET", "/v2/"),
            ("HEAD", "/v2/team/app/manifests/1"),
        ]

    played(tmp_path, story)
