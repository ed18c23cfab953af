"""The client against the registry of Debian's package: what it answers, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.manifests import ImageManifest, Platform
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from tests.support.docker_registry import PASSWORD, USER, DockerRegistry, docker_registry, image


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry") / "open") as found:
        yield found


def asked(registry: DockerRegistry, story: Callable[[Registry], Awaitable[None]]) -> None:
    async def whole() -> None:
        client = Registry(RegistryConnection([registry.host], SystemClock()))
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(whole())


def test_a_tag_is_resolved_by_one_request(registry: DockerRegistry) -> None:
    async def story(client: Registry) -> None:
        digest = registry.push("team/app", "1", image("one"))
        assert await client.resolve(ImageReference(registry.host, "team/app", "1"), None) == ImageManifest(digest)
        assert registry.requests("HEAD", "team/app", "1") == 1
        assert registry.requests("GET", "team/app") == 0
        moved = registry.push("team/app", "1", image("two"))
        assert await client.resolve(ImageReference(registry.host, "team/app", "1"), None) == ImageManifest(moved)

    asked(registry, story)


def test_an_index_lists_its_platforms(registry: DockerRegistry) -> None:
    async def story(client: Registry) -> None:
        digest = registry.push("many", "1", image("arm", "arm64"), image("amd"))
        many = ImageReference(registry.host, "many", "1")
        assert await client.resolve(many, None) == ImageManifest(digest, is_index=True)
        found = await client.platforms(many.at(digest), None)
        assert found == (Platform("linux", "amd64"), Platform("linux", "arm64"))

    asked(registry, story)


def test_what_is_missing_or_deleted_has_the_words_of_the_registry(registry: DockerRegistry) -> None:
    async def story(client: Registry) -> None:
        digest = registry.push("gone", "1", image("gone"))
        registry.delete("gone", digest)
        for name, tag in (("gone", "1"), ("never", "1")):
            with pytest.raises(ImageError, match="answers 404 Not Found: manifest unknown") as error:
                await client.resolve(ImageReference(registry.host, name, tag), None, with_body=True)
            assert error.value.missing
        with pytest.raises(ImageError, match="answers 404 Not Found"):
            await client.resolve(ImageReference(registry.host, "gone", digest=digest), None)

    asked(registry, story)


def test_a_login_is_wanted_and_checked(tmp_path: Path) -> None:
    with docker_registry(tmp_path / "closed", login=True) as closed:
        digest = closed.push("team/app", "1", image("one"))
        app = ImageReference(closed.host, "team/app", "1")

        async def story(client: Registry) -> None:
            for login in (None, RegistryCredentials(USER, "wrong")):
                with pytest.raises(ImageError, match="answers 401 Unauthorized: authentication required"):
                    await client.resolve(app, login, with_body=True)
            assert await client.resolve(app, RegistryCredentials(USER, PASSWORD)) == ImageManifest(digest)
            assert closed.requests("HEAD", "team/app") == 1

        asked(closed, story)
