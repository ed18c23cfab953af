"""A store of images in memory: it pulls from a fake registry, as slowly as it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconciler.engines.host.images.protocol import Credentials, ImageError, ImageInfo
from tests.support.registry import FakeRegistry


class FakeImageStore:
    """Pulls what ``registry`` has. ``hold`` makes every pull wait; ``fail`` may raise in its place.

    ``pulls`` lists the references in the order in which pulls began, ``most`` is how many ran at once.
    """

    def __init__(self, registry: FakeRegistry) -> None:
        self.pulls: list[str] = []
        self.logins: list[Credentials | None] = []
        self.removed: list[str] = []
        self.in_use: set[str] = set()
        self.running = 0
        self.most = 0
        self.hold: asyncio.Event | None = None
        self.fail: Callable[[str], None] = lambda reference: None
        self.architecture = "amd64"
        self.size = 1000
        self.images: dict[str, ImageInfo] = {}
        self._registry = registry

    async def pull(self, reference: str, credentials: Credentials | None) -> None:
        """Pull from the registry."""
        self.pulls.append(reference)
        self.logins.append(credentials)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
            self.fail(reference)
            repository, _, digest = reference.partition("/")[2].partition("@")
            if not self._registry.has(repository, digest):
                raise ImageError(f"the image {reference}: manifest unknown", missing=True)
            self.add(reference)
        finally:
            self.running -= 1

    def add(self, reference: str, *more: str) -> None:
        """Let an image be here, whoever brought it."""
        self.images[reference] = ImageInfo(
            reference.partition("@")[2], (reference, *more), "linux", self.architecture, self.size
        )

    async def inspect(self, reference: str) -> ImageInfo | None:
        """The image, if it is here."""
        await asyncio.sleep(0)
        return self.images.get(reference)

    async def list(self) -> list[ImageInfo]:
        """All images."""
        return list(self.images.values())

    async def remove(self, reference: str) -> bool:
        """Remove one."""
        assert not self.running, "an image is removed during a pull"
        await asyncio.sleep(0)
        if reference in self.in_use:
            return False
        self.removed.append(reference)
        self.images.pop(reference, None)
        return True
