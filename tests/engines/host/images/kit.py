"""An image service over a fake registry and a fake store, in the time of a fake clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.manifests import Platform
from reconciler.engines.images.refresh import WatchedTag
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.settings import ImageSettings
from tests.engines.host.fake import QuickClock
from tests.support.images import FakeImageStore
from tests.support.registry import FakeRegistry, digest_of, manifest

HOST = "r.example"
APP = f"{HOST}/team/app:1"
WEB = Key(Kind.WORKLOAD, "shop", "web")
API = Key(Kind.WORKLOAD, "shop", "api")


def digest(mark: str) -> str:
    """The digest of the image that is pushed with ``mark``."""
    return digest_of(manifest(mark))


def pinned(mark: str, name: str = f"{HOST}/team/app") -> str:
    """The reference that runs the image that is pushed with ``mark``."""
    return f"{name}@{digest(mark)}"


class ImageServiceHarness:
    """A registry that has team/app:1, pushed with the mark ``one``, and a service that uses it."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.clock = QuickClock()
        self.registry = FakeRegistry()
        self.registry.push("team/app", "1", manifest("one"))
        self.store = FakeImageStore(self.registry)
        self.secrets: dict[str, SecretValue] = {}
        self.in_use: set[str] = set()
        self.expired: list[str] = []
        self.moved: list[tuple[WatchedTag, str]] = []
        self.errors: list[tuple[Key, str]] = []
        self.rng = random.Random(7)
        self.settings = ImageSettings(**settings)
        self.service = self._made()
        self._running: asyncio.Task[None] | None = None

    def _made(self) -> ImageService:
        context = ImageContext(
            self.path, "acme", self.settings, self._read, self.clock, self.rng, Platform("linux", "amd64")
        )
        events = ImageEvents(
            lambda tag, new: self.moved.append((tag, new)),
            lambda key, error: self.errors.append((key, str(error))),
            lambda: self.in_use,
            self.expired.append,
        )
        client = Registry(RegistryConnection((), self.clock, transport=self.registry.transport(HOST)))
        return ImageService(context, self.store, events, client)

    def _read(self, key: Key) -> SecretValue:
        if key.name not in self.secrets:
            raise EngineError(f"{key} is not applied")
        return self.secrets[key.name]

    def run(self) -> None:
        """Let the service follow tags and remove images."""
        self._running = asyncio.create_task(self.service.run())

    async def close(self) -> None:
        """End the service."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        await self.service.close()
        self._running = None

    async def restart(self) -> None:
        """Another daemon takes over."""
        running = self._running is not None
        await self.close()
        self.service = self._made()
        if running:
            self.run()

    async def ensure(
        self, image: str = APP, version: int = 1, key: Key = WEB, follow: bool = False, **more: Any
    ) -> str:
        """The reference that the only container of a version runs."""
        wanted = WorkloadImages(key, version, {"main": image}, **more)
        return (await self.service.ensure(wanted, follow=follow))["main"]

    async def refused(self, image: str = APP, **more: Any) -> ImageError:
        """The error of a version whose image cannot be provided."""
        with pytest.raises(ImageError) as error:
            await self.ensure(image, **more)
        return error.value


def played(path: Path, story: Callable[[ImageServiceHarness], Awaitable[None]], **settings: Any) -> None:
    """Play ``story`` with a service that is closed at the end."""

    async def whole() -> None:
        harness = ImageServiceHarness(path, **settings)
        try:
            await story(harness)
        finally:
            await harness.close()

    asyncio.run(whole())
