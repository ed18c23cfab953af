"""The images of a version come before its rollout: a missing one takes nothing down, and a version keeps its bytes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.images.pulled import PulledImages, has_pulled, pulled_path
from reconciler.engines.host.images.space import SWEEP_SECONDS
from reconciler.engines.host.plugin import HostPlugin
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, RunningContainer
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageReference
from reconciler.engines.workload.spec import Restriction
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.settings import (
    HostSettings,
    ImageSettings,
    LocationSettings,
    PodmanSettings,
    RestrictionSettings,
    Settings,
    UserNamespaceSettings,
)
from tests.engines.host.cron.kit import CronHarness
from tests.engines.host.fake import FakeRuntime, Programs
from tests.engines.host.kit import WEB, HostHarness, play_on
from tests.engines.host.kit import played as played_plainly
from tests.engines.host.provisioning.kit import vault
from tests.support.docker_registry import Image, image
from tests.support.images import FakeImageStore
from tests.support.registry import FakeRegistry, Reply, digest_of, manifest, refused

HOST = "r.example"


class ImageRuntime(FakeRuntime):
    """Runs any image that its store has, as a program that behaves plainly; ``images`` are those that it ran."""

    def __init__(
        self, programs: Programs, store: FakeImageStore, images: list[str], labels: dict[ContainerId, str]
    ) -> None:
        super().__init__(programs)
        self.image_store = store
        self._images = images
        self._labels = labels

    async def start(self, launch: ContainerStart) -> None:
        """Start a container whose image is here."""
        assert self.image_store is not None
        if await self.image_store.inspect(launch.image) is None:
            raise EngineError(f"{launch.image} is not here", reason=Reason.IMAGE_NOT_FOUND)
        self._images.append(launch.image)
        await super().start(msgspec.structs.replace(launch, image="plain"))
        self._labels[launch.place] = launch.image

    async def list(self) -> list[RunningContainer]:
        """All containers, with the images in their labels."""
        return [msgspec.structs.replace(each, image=self._labels[each.place]) for each in await super().list()]


class ImageHarness(HostHarness):
    """A host engine with images: a registry that has team/app:1 and :2."""

    def __init__(self, path: Path) -> None:
        self.registry = FakeRegistry()
        for tag in ("1", "2"):
            self.registry.push("team/app", tag, manifest(tag))
        self.store = FakeImageStore(self.registry)
        self.images: list[str] = []
        self.labels: dict[ContainerId, str] = {}
        self.made: Callable[[], FakeRuntime] | None = None
        super().__init__(path)

    def _made(self) -> HostEngine:
        context = EngineContext(LocationRecords(self.records, "here"), self._settings, self.time, vault({}))
        registry = Registry(RegistryConnection((), self.time, transport=self.registry.transport(HOST)))
        runtime = self.made() if self.made else ImageRuntime(self.programs, self.store, self.images, self.labels)
        engine = HostEngine(context, self.root, runtime, registry)
        self.engines["here"] = engine
        if self.git_is_read:
            engine.begin_schedules()
        return engine

    async def seen(self) -> dict[str, Any]:
        """The status of the workload."""
        [found] = [each for each in await self.engine.observe() if str(each.key) == WEB]
        status: dict[str, Any] = msgspec.json.decode(found.state)["status"]
        return {**status, "health": str(found.health)}

    def serving(self) -> list[int]:
        """The versions that run."""
        return [self.programs.running[place].launch.version for place in self.programs.places()]


def pinned(mark: str) -> str:
    """The reference that runs the image pushed with ``mark``."""
    return f"{HOST}/team/app@{digest_of(manifest(mark))}"


def played(path: Path, story: Callable[[ImageHarness], Awaitable[None]]) -> None:
    """Play ``story`` with an engine that has images, and is closed at the end."""
    play_on(lambda: ImageHarness(path), story)


@pytest.mark.parametrize(("answer", "waits"), [(True, 45.0), (False, 0.0), (None, 45.0)])
def test_an_image_without_sleep_gets_sigterm_at_once(tmp_path: Path, answer: bool | None, waits: float) -> None:
    class SleeplessRuntime(ImageRuntime):
        async def can_sleep(self, place: ContainerId) -> bool:
            self._programs.note("sleep?", place.replica, place.container)
            if answer is None:
                raise EngineError("no answer", reason=Reason.RUNTIME_UNAVAILABLE)
            return answer

    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        host._settings = msgspec.structs.replace(host._settings, host=HostSettings(termination_scale=1.0))
        host.made = lambda: SleeplessRuntime(host.programs, host.store, host.images, host.labels)
        await host.restart()
        host.engine.news()
        while "applied" not in set((await host.delete()).values()):
            await host.time.advance(5.0)
        asked, ended, *_ = [call for call in host.programs.calls if call.verb in ("sleep?", "terminate")]
        assert (asked.verb, ended.verb) == ("sleep?", "terminate")
        assert waits <= ended.at - asked.at < waits + 5.0
        assert Reason.PRE_STOP_FAILED not in {event.reason for event in host.engine.news()}

    played(tmp_path, story)


def test_replicas_of_a_version_run_the_digest_that_its_tag_meant(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        assert host.images == [pinned("1")]
        host.registry.push("team/app", "1", manifest("another"))
        [place] = host.programs.places()
        host.programs.end(place, 1)
        await host.time.advance(60.0)
        assert host.images == [pinned("1")] * 2
        await host.restart()
        await host.time.advance(60.0)
        assert host.serving() == [1]
        assert host.images == [pinned("1")] * 2, "nothing starts anew because the daemon did"

    played(tmp_path, story)


def test_the_status_shows_what_the_images_of_a_workload_mean(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        async def resolved() -> dict[str, Any]:
            [found] = [each for each in await host.engine.observe() if str(each.key) == WEB]
            images: dict[str, Any] = msgspec.json.decode(found.state)["workload"]["resolvedImages"]
            return images

        await host.apply(1, f"{HOST}/team/app:1")
        first = await resolved()
        assert first["images"] == [{"image": f"{HOST}/team/app:1", "digest": digest_of(manifest("1"))}]
        assert (first["resolvedAt"][10], first["errorMessages"]) == ("T", [])
        await host.restart()
        assert await resolved() == first
        host.registry.answer = lambda asked: refused(404, "MANIFEST_UNKNOWN", "manifest unknown")
        await host.ask(2, f"{HOST}/team/app:none")
        await host.event(Reason.IMAGE_PULL_FAILED)
        missing = await resolved()
        assert (missing["images"], missing["resolvedAt"]) == ([], "")
        [message] = missing["errorMessages"]
        assert message.startswith("ImagePullFailed: ")

    played(tmp_path, story)


def test_processes_have_no_images(tmp_path: Path) -> None:
    async def story(host: HostHarness) -> None:
        await host.apply(1)
        [found] = [each for each in await host.engine.observe() if str(each.key) == WEB]
        assert "resolvedImages" not in msgspec.json.decode(found.state)["workload"]

    played_plainly(tmp_path, story)


def test_the_old_version_serves_until_the_image_of_the_new_one_is_here(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        host.store.hold = asyncio.Event()
        await host.ask(2, f"{HOST}/team/app:2", rolloutOptions={"maxSurgeReplicas": "0", "maxUnavailableReplicas": "1"})
        await host.time.advance(120.0)
        assert host.serving() == [1]
        status = await host.seen()
        assert status["message"].startswith("the image of main is being pulled; 0 of 1 replicas updated")
        assert status["health"] == "Loading"
        host.store.hold.set()
        await host.until(lambda found: [each.version for each in found if each.ready] == [2])
        assert host.images == [pinned("1"), pinned("2")]

    played(tmp_path, story)


class ServedStore(FakeImageStore):
    """A store that reads what the daemon serves, and ``hold`` before it has the last blob."""

    def __init__(self, registry: FakeRegistry, image: Image) -> None:
        super().__init__(registry)
        self.image = image

    def has_own_rules(self, reference: ImageReference) -> bool:
        """Never."""
        return False

    async def pull(self, reference: str, credentials: RegistryCredentials | None, served: str = "") -> None:
        """Read the parts one after the other."""
        async with httpx2.AsyncClient(trust_env=False, base_url=f"http://{served.partition('/')[0]}/v2/") as client:
            name = served.partition("/")[2].partition("@")[0]
            await client.get(f"{name}/manifests/{self.image.digest}")
            await client.get(f"{name}/blobs/{self.image.layer}")
            assert self.hold is not None
            await self.hold.wait()
        self.add(reference)


def test_the_status_has_the_progress_of_a_pull(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        one = image("big", size=3_000_000)
        host.registry.push("team/app", "1", one.manifest)
        host.registry.answer = lambda asked: (
            Reply(body=one.blobs[digest]) if (digest := asked.path.rpartition("/")[2]) in one.blobs else None
        )
        host.store = ServedStore(host.registry, one)
        host.store.hold = asyncio.Event()
        await host.restart()
        await host.ask(1, f"{HOST}/team/app:1")
        for _ in range(500):
            if "3.0 of 3.0 MB" in (message := (await host.seen())["message"]):
                break
            await asyncio.sleep(0.01)
        assert message.startswith("the image of main is being pulled: 3.0 of 3.0 MB; 0 of 1 replicas updated")
        host.store.hold.set()
        await host.until(lambda found: [each.version for each in found if each.ready] == [1])
        assert "pulled" not in (await host.seen()).get("message", "")

    played(tmp_path, story)


def test_a_missing_image_takes_nothing_down(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        host.registry.answer = lambda asked: refused(404, "MANIFEST_UNKNOWN", "manifest unknown")
        await host.ask(2, f"{HOST}/team/app:none")
        news = await host.event(Reason.IMAGE_PULL_FAILED)
        assert f"{HOST}/team/app:none" in news.message
        assert "404 Not Found" in news.message
        status = await host.seen()
        assert status["message"].startswith("ImagePullFailed: ")
        assert status["health"] == "Unhealthy"
        assert host.serving() == [1]

        host.registry.answer = lambda asked: None
        host.registry.push("team/app", "none", manifest("late"))
        await host.time.advance(3600.0)
        await host.until(lambda found: [each.version for each in found if each.ready] == [2])
        assert (await host.seen())["health"] == "Healthy"
        assert host.images == [pinned("1"), pinned("late")]

    played(tmp_path, story)


def test_a_tag_that_moved_is_a_rollout_where_the_workload_follows_tags(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1", dynamic=True)
        host.registry.push("team/app", "1", manifest("moved"))
        for _ in range(60):
            await host.time.advance(10.0)
        assert host.images == [pinned("1"), pinned("moved")]
        assert host.serving() == [1]
        assert (await host.event(Reason.IMAGE_CHANGED)).key.name == "web"

    played(tmp_path, story)


class IdleRuntime(FakeRuntime):
    """Runs processes, where a former runtime has left images."""

    def __init__(self, programs: Programs, store: FakeImageStore) -> None:
        super().__init__(programs)
        self.idle_store = store


def test_images_of_a_former_runtime_are_removed_and_none_is_pulled(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        assert [*host.store.images] == [pinned("1")]
        runtime = IdleRuntime(host.programs, host.store)
        host.made = lambda: runtime
        host._settings = msgspec.structs.replace(host._settings, images=ImageSettings(keep=60.0))
        await host.restart()
        await host.apply(2, "plain")
        assert host.store.pulls == [pinned("1")], "nothing is pulled for processes"
        assert host.serving() == [2]
        for _ in range(4):
            await host.time.advance(SWEEP_SECONDS)
            if not host.store.images:
                break
        assert host.store.removed == [pinned("1")]
        assert not has_pulled(tmp_path / "here")

    played(tmp_path, story)


def test_a_location_of_processes_that_pulled_images_still_cares_for_them(tmp_path: Path) -> None:
    settings = Settings(
        "acme", (), tmp_path, locations={"here": LocationSettings("host", runtime="process", dataplane="builtin")}
    )
    with closing(Records.open(tmp_path / FILE)) as records:
        context = EngineContext(LocationRecords(records, "here"), settings, SystemClock(), vault({}))

        def store() -> object:
            return HostPlugin().make(context).location.runtime.idle_store  # type: ignore[attr-defined]

        assert store() is None
        root = tmp_path / "host" / "here"
        PulledImages(pulled_path(root)).add(pinned("1"), pulled=True)
        assert store() is not None
        PulledImages(pulled_path(root)).replace({})
        (root / "podman" / "shop" / "web" / "web-x").mkdir(parents=True)
        assert store() is not None, "a former runtime has containers"


def test_a_workload_whose_image_never_comes_can_be_deleted(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        host.store.hold = asyncio.Event()
        await host.ask(1, f"{HOST}/team/app:1")
        await host.time.advance(30.0)
        assert host.images == []
        while "applied" not in set((await host.delete()).values()):
            await host.time.advance(5.0)
        host.store.hold.set()
        await host.time.advance(60.0)
        assert host.images == []

    played(tmp_path, story)


def test_a_version_that_runs_has_its_image_although_the_record_of_its_digest_is_lost(tmp_path: Path) -> None:
    async def replace(host: ImageHarness) -> None:
        """Let a new replica take the place of the one that runs."""
        [old] = host.engine.location.controller.live_replicas()
        host.engine.location.controller.evict(old, "a test")
        await host.until(lambda found: [each.name != old.name for each in found if each.ready] == [True])

    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        host.registry.push("team/app", "1", manifest("another"))
        shutil.rmtree(tmp_path / "here" / "images" / "digests")
        await host.restart()
        await replace(host)
        assert host.images == [pinned("1")] * 2
        await host.engine.close()
        shutil.rmtree(tmp_path / "here" / "images" / "digests")
        shutil.rmtree(tmp_path / "here" / "replicas")
        await host.restart()
        await replace(host)
        assert host.images == [pinned("1")] * 3, "the labels of its containers name it too"

    played(tmp_path, story)


def test_an_image_that_is_gone_when_a_container_starts_is_pulled_at_once(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        await host.apply(1, f"{HOST}/team/app:1")
        del host.store.images[pinned("1")]
        [place] = host.programs.places()
        host.programs.end(place, 1)
        await host.time.advance(30.0)
        assert host.store.pulls == [pinned("1")] * 2
        assert host.images == [pinned("1")] * 2
        assert host.serving() == [1]

    played(tmp_path, story)


class CronImageHarness(ImageHarness, CronHarness):
    """A cron workload whose image comes from the registry."""


def test_an_execution_whose_image_does_not_exist_is_invalid_and_the_next_one_runs_when_it_does(tmp_path: Path) -> None:
    async def story(host: CronImageHarness) -> None:
        await host.schedule(image=f"{HOST}/team/app:3", concurrencyPolicy="Forbid")
        await host.rest(130.0)
        first, second = await host.executions()
        assert (first.status, second.status) == ("Invalid", "Invalid")
        assert first.conditions[0]["reason"] == "ImagePullFailed"
        assert "404" in first.conditions[0]["message"]
        assert "ExecutionSkipped" not in host.reasons()
        host.registry.push("team/app", "3", manifest("3"))
        await host.rest(300.0)
        assert host.images == [pinned("3")]
        assert (await host.states())[-1] == "Active"

    play_on(lambda: CronImageHarness(tmp_path), story)


def test_an_execution_waits_five_minutes_for_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    async def story(host: CronImageHarness) -> None:
        host.registry.answer = lambda asked: refused(503, "UNAVAILABLE", "later")
        await host.schedule(image=f"{HOST}/team/app:1", schedule="*/20 * * * *", historyLimit=5)
        await host.rest(20 * 60.0 + 290.0)
        assert await host.states() == ["Active"]
        await host.rest(20.0)
        [one] = await host.executions()
        assert (one.status, one.conditions[0]["reason"]) == ("Invalid", "ImagePullFailed")
        host.registry.answer = lambda asked: None
        await host.rest(20 * 60.0)
        assert await host.states() == ["Invalid", "Active"]

    play_on(lambda: CronImageHarness(tmp_path), story)


def test_user_namespaces_of_the_settings_replace_the_replicas_whose_users_they_change(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        async def choose(**chosen: Any) -> list[Any]:
            podman = PodmanSettings(user_namespaces=UserNamespaceSettings(**chosen))
            host._settings = msgspec.structs.replace(host._settings, podman=podman)
            await host.restart()
            await host.time.advance(120.0)
            found: list[Any] = host.programs.places()
            return found

        await host.apply(1, f"{HOST}/team/app:1")
        [first] = host.programs.places()
        assert await choose(host_users=("prod/*", "shop/db")) == [first]
        [second] = await choose(host_users=("shop/w*",))
        assert second != first
        assert await choose(mode="host") == [second], "it has none already"
        [third] = await choose(first_id=200_000)
        [fourth] = await choose()
        assert len({first, second, third, fourth}) == 4

    played(tmp_path, story)


def test_restrictions_of_the_settings_replace_the_replicas_of_the_workloads_that_they_name(tmp_path: Path) -> None:
    async def story(host: ImageHarness) -> None:
        async def restrict(*rules: RestrictionSettings) -> None:
            host._settings = msgspec.structs.replace(host._settings, podman=PodmanSettings(restrictions=rules))
            await host.restart()
            await host.time.advance(120.0)

        await host.apply(1, f"{HOST}/team/app:1")
        before = host.programs.places()
        await restrict(RestrictionSettings(("prod/*", "shop/db"), read_only_root_filesystem=True))
        assert host.programs.places() == before
        everywhere = RestrictionSettings(("*/*",), drop_capabilities=("SETPCAP", "SETFCAP"))
        await restrict(everywhere, RestrictionSettings(("shop/w*",), read_only_root_filesystem=True))
        [after] = host.programs.places()
        assert [after] != before
        assert host.programs.running[after].launch.restriction == Restriction(True, ("SETFCAP", "SETPCAP"))

    played(tmp_path, story)
