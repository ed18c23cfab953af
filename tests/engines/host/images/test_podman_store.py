"""Images in Podman's storage: what is pulled, claimed and removed there, and in which words that fails."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.host.images.pull_proxy import PullProgress
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest, encode_segment
from reconciler.engines.host.runtimes.podman.images import PodmanImages
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.settings import ImageSettings
from tests.engines.host.images.kit import WEB
from tests.support.clock import FakeClock
from tests.support.docker_registry import PASSWORD, USER, DockerRegistry, Image, docker_registry, image
from tests.support.podman import PodmanService
from tests.support.programs import only_root, small_disk, tool
from tests.support.registry import FakeRegistry, RegistryRequest, Reply

root = only_root("Podman's storage of the tests is that of root")


class IdleService(PodmanService):
    """A Podman service that runs nothing: unlike others it need not be alone on this machine."""

    def start(self) -> None:
        """Start it. A pull that is killed leaves its copies below the folder too."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(self.folder / "tmp"))
            super().start()

    def close(self) -> None:
        """End it, and remove its mounts and files."""
        self.kill()
        mounted = [str(self.folder / "root" / "overlay"), str(self.folder / "run")]
        subprocess.run(["umount", "-l", *mounted], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A directory with a short name: Podman refuses a run directory of more than 50 characters."""
    tool("podman", "podman")
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    try:
        yield folder / "p"
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def service() -> Iterator[IdleService]:
    with short_folder() as folder:
        idle_service = IdleService(folder)
        try:
            idle_service.start()
            yield idle_service
        finally:
            idle_service.close()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry") / "open") as found:
        yield found


class TwoStores:
    """The stores of two locations that share the storage of ``service``, and a client that shows what is there."""

    def __init__(self, service: IdleService, registry: DockerRegistry) -> None:
        self.registry = registry
        self.ours = PodmanImages(service.socket, "a1", [registry.host])
        self.theirs = PodmanImages(service.socket, "b2", [registry.host])
        self.podman = PodmanClient(service.socket)

    def push(self, name: str, *images: Image) -> str:
        """The reference of an image in the registry."""
        return f"{self.registry.host}/{name}@{self.registry.push(name, '1', *images)}"

    async def names(self, reference: str) -> set[str]:
        """All names in the storage with the digest of ``reference``."""
        listed = json.loads(await self.podman.get("images/json"))
        digest = reference.partition("@")[2]
        return {name for each in listed if each["Digest"] == digest for name in each["Names"] or ()}

    async def drop(self, store: PodmanImages, reference: str) -> bool:
        """Release and remove."""
        return await store.release(reference) and await store.remove(reference, [reference])

    async def close(self) -> None:
        """Close all."""
        await self.ours.close()
        await self.theirs.close()
        await self.podman.close()


def played(service: IdleService, registry: DockerRegistry, story: Callable[[TwoStores], Awaitable[None]]) -> None:
    async def whole() -> None:
        two = TwoStores(service, registry)
        try:
            await story(two)
        finally:
            await two.close()

    asyncio.run(whole())


@root
def test_an_image_is_pulled_claimed_and_removed(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        one = image("one", size=100_000)
        name = two.push("team/app", one)
        assert await two.ours.inspect(name) is None
        await two.ours.pull(name, None)
        image_info = await two.ours.inspect(name)
        assert image_info is not None
        assert (image_info.os, image_info.architecture, image_info.digest, image_info.references) == (
            "linux",
            "amd64",
            one.digest,
            (name,),
        )
        assert image_info.size > 100_000
        for _ in range(2):
            await two.ours.claim(name)
        [listed] = [each for each in await two.ours.list() if each.id == image_info.id]
        assert listed.references == (name,)
        assert len(await two.names(name)) == 2
        for _ in range(2):
            assert await two.drop(two.ours, name)
        assert await two.names(name) == set()
        with pytest.raises(ImageError) as error:
            await two.ours.claim(name)
        assert error.value.missing

    played(service, registry, story)


@root
def test_the_image_of_an_index_is_that_of_this_host(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        name = two.push("many", image("arm", "arm64"), image("amd"))
        await two.ours.pull(name, None)
        await two.ours.claim(name)
        found = await two.ours.inspect(name)
        assert found is not None
        assert found.architecture == "amd64"
        assert (name,) in [each.references for each in await two.ours.list()]
        assert await two.drop(two.ours, name)
        assert await two.ours.inspect(name) is None

        foreign = two.push("foreign", image("arm", "arm64"), image("s390", "s390x"))
        with pytest.raises(ImageError, match=r"not made for this host: .*no image found in") as error:
            await two.ours.pull(foreign, None)
        assert error.value.reason is Reason.IMAGE_PLATFORM_MISMATCH

    played(service, registry, story)


@root
def test_two_locations_never_remove_what_the_other_one_needs(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        name = two.push("shared", image("shared"))
        await two.ours.pull(name, None)
        for store in (two.ours, two.theirs):
            await store.claim(name)
        assert await two.drop(two.ours, name)
        assert await two.theirs.inspect(name) is not None
        assert await two.theirs.release(name)
        assert await two.theirs.remove(name, [name])
        assert await two.theirs.inspect(name) is None

    played(service, registry, story)


@root
def test_what_somebody_removes_stays_as_long_as_it_is_claimed(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        name = two.push("removed", image("removed"))
        await two.ours.pull(name, None)
        await two.ours.claim(name)
        await two.podman.delete(f"images/{encode_segment(name)}")
        assert await two.ours.inspect(name) is not None
        assert await two.drop(two.ours, name)
        assert await two.names(name) == set()

    played(service, registry, story)


@root
def test_claims_without_a_record_end_and_those_of_others_stay(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        first, second = two.push("first", image("first")), two.push("second", image("second"))
        for name in (first, second):
            await two.ours.pull(name, None)
            await two.ours.claim(name)
            await two.theirs.claim(name)
        before = await two.names(first)
        await two.ours.release_others([second])
        assert len(before - await two.names(first)) == 1
        assert len(await two.names(second)) == 3

    played(service, registry, story)


@root
def test_an_image_with_a_name_of_somebody_stays(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        name = two.push("tagged", image("tagged"))
        await two.ours.pull(name, None)
        await two.ours.claim(name)
        await two.podman.post(f"images/{encode_segment(name)}/tag", query={"repo": "localhost/mine", "tag": "1"})
        assert await two.drop(two.ours, name)
        assert await two.names(name) == {name, "localhost/mine:1"}
        assert "localhost/mine:1" in [each for one in await two.theirs.list() for each in one.references]

    played(service, registry, story)


@root
def test_an_image_that_a_container_uses_stays(service: IdleService, registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        name = two.push("used", image("used"))
        await two.ours.pull(name, None)
        await two.ours.claim(name)
        created = await two.podman.post("containers/create", {"image": name, "netns": {"nsmode": "none"}})
        assert not await two.drop(two.ours, name)
        assert await two.ours.inspect(name) is not None
        await two.podman.delete(f"containers/{json.loads(created)['Id']}")
        assert await two.drop(two.ours, name)

    played(service, registry, story)


@root
def test_a_failed_pull_has_the_words_of_the_registry(service: IdleService, registry: DockerRegistry) -> None:
    async def failure(two: TwoStores, name: str) -> ImageError:
        with pytest.raises(ImageError) as error:
            await two.ours.pull(name, None)
        assert str(error.value).startswith(f"the image {name}: ")
        assert error.value.reason is Reason.IMAGE_PULL_FAILED
        assert await two.ours.inspect(name) is None
        return error.value

    async def story(two: TwoStores) -> None:
        missing = await failure(two, f"{registry.host}/never@{image('never').digest}")
        assert "manifest unknown" in str(missing)
        assert missing.missing

        without, cut = image("without a blob", size=50_000), image("a cut blob", size=50_000)
        names = [two.push("without", without), two.push("cut", cut)]
        registry.blob(without.layer).unlink()
        registry.blob(cut.layer).write_bytes(registry.blob(cut.layer).read_bytes()[:1000])
        for name, words in zip(names, ("404 (Not Found)", "Digest did not match"), strict=True):
            error = await failure(two, name)
            assert words in str(error)
            assert not error.missing

    played(service, registry, story)


@root
def test_a_login_reaches_the_registry_and_nothing_else(
    service: IdleService, registry: DockerRegistry, tmp_path: Path
) -> None:
    with docker_registry(tmp_path / "closed", login=True) as closed:

        async def story(two: TwoStores) -> None:
            name = two.push("secret", image("behind a login"))
            for login in (None, RegistryCredentials(USER, "wrong")):
                with pytest.raises(ImageError, match="authentication required"):
                    await two.ours.pull(name, login)
            await two.ours.pull(name, RegistryCredentials(USER, PASSWORD))
            assert await two.ours.inspect(name) is not None

        played(service, closed, story)
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    files = [path for path in service.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if login in path.read_bytes()] == []


def paused(fake: FakeRegistry, one: Image) -> asyncio.Event:
    """Let the layer of an image come only when the event is set; everything else comes at once."""
    pause = asyncio.Event()

    def answer(asked: RegistryRequest) -> Reply | None:
        digest = asked.path.rpartition("/")[2]
        if digest not in one.blobs:
            return None
        return Reply(body=one.blobs[digest], pause=pause if digest == one.layer else None)

    fake.answer = answer
    return pause


class Pull(NamedTuple):
    """A pull that is under way: it has asked for a layer, which comes when ``pause`` is set."""

    store: PodmanImages
    name: str
    task: asyncio.Task[None]
    pause: asyncio.Event


@asynccontextmanager
async def pulling(service: IdleService, mark: str) -> AsyncIterator[Pull]:
    """The pull of an image with ``mark``, from a registry that lives as long."""
    one = image(mark)
    async with FakeRegistry() as fake:
        store = PodmanImages(service.socket, "a1", [fake.host])
        pause, name = paused(fake, one), f"{fake.host}/app@{fake.push('app', '1', one.manifest)}"
        task = asyncio.create_task(store.pull(name, None))
        while not any(each.path.endswith(one.layer) for each in fake.asked):
            assert not task.done(), task
            await asyncio.sleep(0.01)
        yield Pull(store, name, task, pause)
        pause.set()
        await store.pull(name, None)
        assert await store.inspect(name) is not None, "the next pull works"
        await store.close()


@root
async def test_a_service_that_is_killed_during_a_pull_is_an_error_and_the_next_pull_works(service: IdleService) -> None:
    async with pulling(service, "during a pull") as pull:
        service.kill()
        with pytest.raises(ImageError) as error:
            await pull.task
        assert error.value.reason is Reason.RUNTIME_UNAVAILABLE
        service.start()


@root
async def test_a_pull_that_is_cancelled_leaves_nothing(service: IdleService) -> None:
    async with pulling(service, "to be cancelled") as pull:
        pull.task.cancel()
        await asyncio.wait([pull.task])
        assert pull.task.cancelled()
        assert await pull.store.inspect(pull.name) is None


@root
def test_a_registry_is_asked_once_for_a_version_and_its_image(
    service: IdleService, registry: DockerRegistry, tmp_path: Path
) -> None:
    """The service over the real client, registry and storage; Podman itself asks for the digest it pulls."""

    async def story(two: TwoStores) -> None:
        one = image("whole", size=50_000)
        digest = registry.push("whole", "1", one)
        clock = FakeClock()
        context = ImageContext(
            tmp_path,
            "acme",
            ImageSettings(insecure=(registry.host,)),
            lambda key: pytest.fail("no secret"),
            clock,
            random.Random(1),
        )
        images = ImageService(context, two.ours, ImageEvents(lambda tag, new: None, lambda key, error: None, set))
        workload_images = WorkloadImages(Key(Kind.WORKLOAD, "shop", "web"), 1, {"main": f"{registry.host}/whole:1"})
        layer = registry.blob(one.layer)
        content = layer.read_bytes()
        layer.unlink()
        for _ in range(3):
            with pytest.raises(ImageError, match=r"invalid status code from registry 404 \(Not Found\)"):
                await images.ensure(workload_images)
        registry.push("whole", "1", image("another"))
        layer.write_bytes(content)
        clock.block(60.0)
        for _ in range(3):
            assert await images.ensure(workload_images) == {"main": f"{registry.host}/whole@{digest}"}
        assert registry.requests("HEAD", "whole") == 1
        assert registry.requests("GET", "whole", "1") == 0
        assert registry.requests("GET", "whole", "sha256") == 2
        await images.close()

    played(service, registry, story)


@root
async def test_podman_asks_the_daemon_alone_for_an_image_of_a_registry_that_no_setting_names(
    service: IdleService, tmp_path: Path
) -> None:
    """No name server knows the host: Podman cannot have asked it."""
    one, fake, host = image("served", size=300_000), FakeRegistry(), "registry.test"
    store, clock = PodmanImages(service.socket, "a1"), FakeClock()
    podman = PodmanClient(service.socket)
    name = f"{host}/team/served@{fake.push('team/served', '1', one.manifest)}"
    fake.answer = lambda asked: (
        Reply(body=one.blobs[digest]) if (digest := asked.path.rpartition("/")[2]) in one.blobs else None
    )
    context = ImageContext(
        tmp_path, "acme", ImageSettings(keep=0.0), lambda key: pytest.fail("no secret"), clock, random.Random(1)
    )
    seen: list[PullProgress] = []
    events = ImageEvents(
        lambda tag, new: None,
        lambda key, error: None,
        set,
        progress=lambda key: seen.append(images.find_progress(key)),
    )
    images = ImageService(
        context, store, events, Registry(RegistryConnection((), clock, transport=fake.transport(host)))
    )
    wanted = WorkloadImages(WEB, 1, {"main": f"{host}/team/served:1"})
    assert await images.ensure(wanted) == {"main": name}
    total = sum(map(len, one.blobs.values()))
    assert seen[-1] == PullProgress(total, total), "Podman read all of it through the daemon"
    assert seen == sorted(seen, key=lambda progress: progress.done)
    image_info = await store.inspect(name)
    assert image_info is not None
    assert (image_info.references, image_info.digest) == ((name,), one.digest)
    listed = [load for load in json.loads(await podman.get("images/json")) if load["Id"] == image_info.id]
    names = sorted(value.partition(":")[0] for value in listed[0]["Names"])
    assert names == ["localhost/reconciler-a1", f"{host}/team/served"]
    images.forget(WEB)
    assert await images._space.sweep(0.0, None) == [name]
    assert await store.inspect(name) is None
    for each in (images, store, podman):
        await each.close()


@root
def test_a_pull_that_was_killed_before_its_image_had_a_name_is_cleaned_up(
    service: IdleService, registry: DockerRegistry
) -> None:
    async def story(two: TwoStores) -> None:
        foreign = two.push("reconciler-b2/" + "0" * 32, image("of the other"))
        lost = two.push("reconciler-a1/" + "0" * 32, image("lost"))
        for each in (lost, foreign):
            await two.ours.pull(each, None)
        await two.ours.release_others(())
        assert (await two.names(lost), await two.names(foreign)) == (set(), {foreign})

    # The name of a registry at loopback is that of the daemon that ran before.
    played(service, registry, story)


@pytest.mark.slow
@root
def test_a_full_storage_is_an_error_in_the_words_of_podman(registry: DockerRegistry) -> None:
    async def story(two: TwoStores) -> None:
        large, little = two.push("toolarge", image("x", size=40_000_000)), two.push("little", image("little"))
        with pytest.raises(ImageError, match="no space left on device") as error:
            await two.ours.pull(large, None)
        assert error.value.reason is Reason.IMAGE_PULL_FAILED
        await two.ours.pull(little, None)
        assert await two.ours.inspect(little) is not None

    with short_folder() as folder, small_disk(folder, "size=24m") as disk:
        small = IdleService(disk)
        try:
            small.start()
            played(small, registry, story)
        finally:
            small.close()


def answered(handle: Callable[[httpx2.Request], httpx2.Response]) -> PodmanImages:
    """A store whose service answers by ``handle``."""
    return PodmanImages(Path("/nowhere"), "a1", transport=httpx2.MockTransport(handle))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Podman ended the pull without a result"),
        (b"{}", "Podman ended the pull without a result"),
        (b"<html>", "Podman ended the pull without a result"),
        (b'{"images": ["x"], "id": "x"}\n{"error": "no space left on device"}\n', "no space left on device"),
        (b'{"error": "\\u001b[31mred\\n' + b"x" * 9000 + b'"}', "\\u001b[31mred x"),
    ],
)
async def test_only_a_result_is_a_success(body: bytes, words: str) -> None:
    store = answered(lambda request: httpx2.Response(200, content=body))
    with pytest.raises(ImageError) as error:
        await store.pull("r.example/app@sha256:1", None)
    assert words in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500
    await store.close()


async def test_what_a_pull_sends_is_quoted_and_hides_the_login() -> None:
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={"images": ["x"], "id": "x"})

    store = answered(handle)
    await store.pull("r.example/a&policy=always@sha256:1", RegistryCredentials("ann", "secret"))
    assert dict(seen[0].url.params) == {
        "reference": "r.example/a&policy=always@sha256:1",
        "policy": "missing",
        "quiet": "true",
    }
    assert "X-Registry-Auth" in seen[0].headers
    await store.close()
    assert "secret" not in repr(PodmanRequest("POST", "images/pull", headers={"X-Registry-Auth": "secret"}))


async def test_an_error_of_podman_names_the_image() -> None:
    cause = {"cause": "storage is locked", "message": "acquiring lock: storage is locked", "response": 500}
    store = answered(lambda request: httpx2.Response(500, json=cause))
    for work in (
        store.pull("r/a@sha256:1", None),
        store.inspect("r/a@sha256:1"),
        store.claim("r/a@sha256:1"),
        store.release("r/a@sha256:1"),
        store.remove("r/a@sha256:1", []),
    ):
        with pytest.raises(ImageError, match="the image r/a@sha256:1: Podman: acquiring lock: storage is locked"):
            await work
    with pytest.raises(ImageError, match="storage is locked"):
        await store.list()
    await store.close()


def test_the_tests_have_a_podman_where_nothing_may_be_missing() -> None:
    if os.environ.get("CI"):
        assert tool("podman", "podman")
