"""What a store may get of the daemon: the parts of one image, during its pull, from addresses that were checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from reconciler.engines.host.images import pull_proxy
from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.host.images.pull_proxy import PullProgress, PullProxy, ServedImage
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.reasons import Reason
from tests.engines.host.images.kit import HOST, WEB, ImageServiceHarness
from tests.engines.host.images.test_destinations import listening
from tests.support.clock import FakeClock
from tests.support.docker_registry import image
from tests.support.images import FakeImageStore
from tests.support.registry import FakeRegistry, RegistryRequest, Reply, digest_of, refused

LOGIN = RegistryCredentials("ann", "pass:word")
ONE = image("one", size=200_000)


class PullProxyHarness:
    """A registry with the image team/app, and a proxy that serves it."""

    def __init__(self, registry: FakeRegistry, seconds: float = 5.0) -> None:
        self.registry = registry
        self.clock = FakeClock()
        self.client = Registry(RegistryConnection([registry.host], self.clock, seconds))
        self.proxy = PullProxy(self.client, "reconciler-a1")
        self.reference = ImageReference(registry.host, "team/app", digest=registry.push("team/app", "1", ONE.manifest))
        self.blobs: Callable[[RegistryRequest, bytes], Reply | None] = lambda asked, content: Reply(body=content)
        registry.answer = self._answer

    def _answer(self, asked: RegistryRequest) -> Reply | None:
        digest = asked.path.rpartition("/")[2]
        if digest not in ONE.blobs or asked.headers.get("authorization", "") != self.wanted:
            return None
        return self.blobs(asked, ONE.blobs[digest])

    @property
    def wanted(self) -> str:
        """The login that blobs want, too."""
        return f"Bearer token-{self.registry.issued}" if self.registry.tokens else ""


@asynccontextmanager
async def open_harness(registry: FakeRegistry | None = None, seconds: float = 5.0) -> AsyncIterator[PullProxyHarness]:
    """The scene, closed afterwards."""
    async with registry or FakeRegistry() as fake:
        harness = PullProxyHarness(fake, seconds)
        try:
            yield harness
        finally:
            await harness.proxy.close()
            await harness.client.close()


def url(served: ServedImage, path: str) -> str:
    """The URL of a part of the image."""
    host, _, name = served.name.partition("@")[0].partition("/")
    return f"http://{host}/v2/{name}/{path}"


async def get(served: ServedImage, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
    """What a store gets."""
    async with httpx2.AsyncClient(trust_env=False) as store:
        return await store.request(method, url(served, path), headers=headers)


async def test_an_image_is_served_in_its_parts_as_the_registry_has_them() -> None:
    async with (
        open_harness() as harness,
        harness.proxy.serve(harness.reference, None) as served,
    ):
        manifest = await get(served, f"manifests/{ONE.digest}", Accept="application/json, a/b")
        assert (manifest.status_code, manifest.content) == (200, ONE.manifest)
        assert harness.registry.asked[-1].headers["accept"] == "application/json, a/b"
        assert harness.registry.asked[-1].headers["user-agent"] == "reconciler"
        for digest, content in ONE.blobs.items():
            assert (await get(served, f"blobs/{digest}")).content == content
        asked = await get(served, f"blobs/{ONE.layer}", "HEAD")
        assert (asked.status_code, asked.content, harness.registry.asked[-1].method) == (200, b"", "HEAD")
        assert served.error is None


async def test_the_rest_of_a_blob_is_asked_for_as_the_store_does() -> None:
    async with (
        open_harness() as harness,
        harness.proxy.serve(harness.reference, None) as served,
    ):
        part = {"Content-Range": f"bytes 5-9/{len(ONE.blobs[ONE.layer])}"}
        harness.blobs = lambda asked, content: Reply(206, part, content[5:10])
        answer = await get(served, f"blobs/{ONE.layer}", Range="bytes=5-9")
        assert (answer.status_code, answer.content) == (206, ONE.blobs[ONE.layer][5:10])
        assert answer.headers["content-range"] == part["Content-Range"]
        assert harness.registry.asked[-1].headers["range"] == "bytes=5-9"


async def test_the_progress_of_a_pull_is_what_the_store_has_read() -> None:
    async with open_harness() as harness:
        reported: list[str] = []
        proxy = PullProxy(harness.client, "reconciler-a1", lambda image: reported.append(str(image)))
        async with proxy.serve(harness.reference, None) as served:
            assert proxy.find_progress(str(harness.reference)) == PullProgress()
            await get(served, f"manifests/{ONE.digest}")
            total = sum(map(len, ONE.blobs.values()))
            assert proxy.find_progress(str(harness.reference)) == PullProgress(0, total)
            await get(served, f"blobs/{ONE.layer}", "HEAD")
            assert served.progress.done == 0
            size = len(ONE.blobs[ONE.layer])
            for _ in range(2):
                await get(served, f"blobs/{ONE.layer}")
                assert served.progress == PullProgress(size, total), "what is read again counts once"
            for digest in ONE.blobs:
                await get(served, f"blobs/{digest}")
            assert served.progress == PullProgress(total, total)
            assert set(reported) == {str(harness.reference)}
        assert proxy.find_progress(str(harness.reference)) == PullProgress()
        await proxy.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"layers": 3}', b'{"manifests": []}', b'{"layers": [{"digest": "a"}]}', b'{"config": {}}'],
)
def test_what_is_no_manifest_of_an_image_has_no_sizes(content: bytes) -> None:
    served = ServedImage("name", ImageReference("", ""), None)
    served.note_manifest(content)
    served.count_blob("blobs/sha256:1", 5)
    assert served.progress.total == 0


def test_progress_is_in_megabytes() -> None:
    assert str(PullProgress(34_400_000, 120_000_000)) == "34 of 120 MB"
    assert str(PullProgress(340_000, 1_200_000)) == "0.3 of 1.2 MB"
    assert str(PullProgress(2_000_000, 1_200_000)) == "1.2 of 1.2 MB"


async def test_the_daemon_logs_in_and_the_store_gets_no_login() -> None:
    registry = FakeRegistry(login="ann:pass:word", tokens=True)
    async with (
        open_harness(registry) as harness,
        harness.proxy.serve(harness.reference, LOGIN) as served,
    ):
        manifest = await get(served, f"manifests/{ONE.digest}")
        assert manifest.status_code == 200
        registry.issued += 1  # The registry forgets what it issued: the next request is refused once.
        harness.clock.block(1.0)
        assert (await get(served, f"manifests/{ONE.digest}")).status_code == 200
        assert "pass:word" not in served.name
        assert not {*manifest.headers} & {"authorization", "www-authenticate"}


@pytest.mark.parametrize("path", ["manifests", "blobs"])
async def test_a_redirect_leads_to_no_address_of_the_host(path: str) -> None:
    async with open_harness() as harness, listening("127.0.0.1") as (port, peers):
        moved = Reply(307, {"Location": f"https://127.0.0.1:{port}/"})
        harness.registry.answer = lambda asked: moved if f"/{path}/" in asked.path else None
        async with harness.proxy.serve(harness.reference, None) as served:
            answer = await get(served, f"{path}/{ONE.layer if path == 'blobs' else ONE.digest}")
            assert (answer.status_code, answer.content) == (502, b"")
            assert f"the image {harness.reference}: 127.0.0.1:{port} is not asked" in str(served.error)
            assert served.error is not None
            assert served.error.reason is Reason.IMAGE_NOT_ALLOWED
        assert peers == []


async def test_a_redirect_is_followed_without_the_login() -> None:
    async with FakeRegistry() as other, open_harness(FakeRegistry(login="ann:pass:word")) as harness:
        harness.client = Registry(RegistryConnection([harness.registry.host, other.host], FakeClock()))
        harness.proxy = PullProxy(harness.client, "reconciler-a1")
        other.answer = lambda asked: Reply(body=b"content")
        moved = Reply(307, {"Location": f"http://{other.host}/store?signed=1"})
        harness.registry.answer = lambda asked: moved if asked.login and "/blobs/" in asked.path else None
        async with harness.proxy.serve(harness.reference, LOGIN) as served:
            assert (await get(served, f"blobs/{ONE.layer}")).content == b"content"
        assert "authorization" not in other.asked[-1].headers


async def test_only_the_image_of_a_pull_is_served_and_only_during_it() -> None:
    async with open_harness() as harness:
        async with (
            harness.proxy.serve(harness.reference, None) as served,
            httpx2.AsyncClient() as store,
        ):
            base = url(served, "")
            asked_before = len(harness.registry.asked)
            for other in (
                base.replace(served.name.partition("@")[0].partition("/")[2], f"reconciler-a1/{'0' * 32}")
                + f"manifests/{ONE.digest}",
                f"{base}manifests/latest",
                f"{base}manifests/{ONE.digest}/../../../secret",
                f"{base}tags/list",
                f"{base}blobs/uploads/",
            ):
                assert (await store.get(other)).status_code == 404
            for method in ("POST", "PUT", "DELETE"):
                assert (await store.request(method, f"{base}manifests/{ONE.digest}")).status_code == 404
            assert len(harness.registry.asked) == asked_before
        former, port = served.name.partition("/")[2], served.name.partition("/")[0].partition(":")[2]
        async with harness.proxy.serve(harness.reference, None) as other:
            moved = ServedImage(f"{other.name.partition('/')[0]}/{former}", harness.reference, None)
            assert (await get(moved, f"manifests/{ONE.digest}")).status_code == 404
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(port))


async def test_connections_of_strangers_are_bounded_and_delay_no_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_proxy, "MOST_SILENT", 8)
    async with (
        open_harness() as harness,
        harness.proxy.serve(harness.reference, None) as served,
    ):
        address, port = served.name.partition("/")[0].split(":")
        strangers = [await asyncio.open_connection(address, int(port)) for _ in range(40)]
        assert (await get(served, f"manifests/{ONE.digest}")).status_code == 200
        async with asyncio.timeout(60):
            while len(harness.proxy._clients) > 8:
                await asyncio.sleep(0.01)
        for _, writer in strangers:
            writer.transport.abort()


@pytest.mark.parametrize(
    "sent", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 40_000]
)
async def test_what_is_no_request_ends_the_connection_alone(sent: bytes) -> None:
    async with open_harness() as found, found.proxy.serve(found.reference, None) as served:
        address, port = served.name.partition("/")[0].split(":")
        reader, writer = await asyncio.open_connection(address, int(port))
        writer.write(sent)
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                assert b"200" not in await reader.read()
        writer.close()
        assert (await get(served, f"manifests/{ONE.digest}")).status_code == 200


async def test_an_answer_that_is_cut_is_not_whole_for_the_store_and_has_its_reason() -> None:
    async with (
        open_harness(seconds=0.3) as harness,
        harness.proxy.serve(harness.reference, None) as served,
    ):
        harness.blobs = lambda asked, content: Reply(headers={"Content-Length": "900000"}, body=content)
        with pytest.raises(httpx2.RemoteProtocolError):
            await get(served, f"blobs/{ONE.layer}")
        assert f"the image {harness.reference}: " in str(served.error)


async def test_a_store_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_proxy, "PATIENCE", 0.2)
    async with (
        open_harness() as harness,
        harness.proxy.serve(harness.reference, None) as served,
    ):
        harness.blobs = lambda asked, content: Reply(body=bytes(40_000_000))
        address, port = served.name.partition("/")[0].split(":")
        _reader, writer = await asyncio.open_connection(address, int(port), limit=1)
        path = url(served, f"blobs/{ONE.layer}").partition(port)[2]
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        async with asyncio.timeout(60):
            while not harness.proxy._clients:
                await asyncio.sleep(0.01)
            while harness.proxy._clients:
                await asyncio.sleep(0.01)
        writer.transport.abort()


class ServedStore(FakeImageStore):
    """A store that gets what the daemon serves, as Podman does."""

    def __init__(self, registry: FakeRegistry) -> None:
        super().__init__(registry)
        self.served: list[str] = []

    def has_own_rules(self, reference: ImageReference) -> bool:
        """Never."""
        return False

    async def pull(self, reference: str, credentials: RegistryCredentials | None, served: str = "") -> None:
        """Get the manifest alone."""
        self.served.append(served)
        self.logins.append(credentials)
        answer = await get(ServedImage(served, ImageReference("", ""), None), f"manifests/{served.partition('@')[2]}")
        if answer.status_code != 200:
            raise ImageError(f"the image {reference}: reading manifest: {answer.status_code}")
        assert digest_of(answer.content) == reference.partition("@")[2]
        self.add(reference)


def test_a_store_asks_the_daemon_alone(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness, store: ServedStore, service: ImageService) -> None:
        wanted = WorkloadImages(WEB, 1, {"main": f"{HOST}/team/app:1"})
        assert [*await service.ensure(wanted)] == ["main"]
        [served] = store.served
        assert served.startswith("127.0.0.1:")
        assert store.logins == [None]

    played(tmp_path, story)


def test_a_refusal_has_the_words_of_the_registry(tmp_path: Path) -> None:
    async def story(harness: ImageServiceHarness, store: ServedStore, service: ImageService) -> None:
        full = f"{HOST}/team/app@{harness.registry.push('team/app', '1', b'{}')}"
        harness.registry.answer = lambda asked: (
            refused(429, "TOOMANYREQUESTS", "too many pulls", Retry_After="77") if "sha256" in asked.path else None
        )
        with pytest.raises(ImageError, match="answers 429 Too Many Requests: too many pulls") as error:
            await service.ensure(WorkloadImages(WEB, 1, {"main": full}))
        assert str(error.value).startswith(f"the image {full}: ")
        assert (error.value.wait or 0) >= 77

    played(tmp_path, story)


def played(path: Path, story: Callable[[ImageServiceHarness, ServedStore, ImageService], Awaitable[None]]) -> None:
    """Play ``story`` with a service whose store asks the daemon."""

    async def whole() -> None:
        harness = ImageServiceHarness(path)
        store = ServedStore(harness.registry)
        context = ImageContext(
            path, "acme", harness.settings, lambda _key: pytest.fail("no secret"), harness.clock, harness.rng
        )
        events = ImageEvents(lambda tag, new: None, lambda key, error: None, set)
        client = Registry(RegistryConnection((), harness.clock, transport=harness.registry.transport(HOST)))
        service = ImageService(context, store, events, client)
        try:
            await story(harness, store, service)
        finally:
            await service.close()

    asyncio.run(whole())
