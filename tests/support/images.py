"""A store of images in memory: it pulls from a fake registry, as slowly as it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec

from reconciler.engines.images.protocol import ImageInfo, RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from tests.support.registry import FakeRegistry


class FakeImageStore:
    """Pulls what ``registry`` has. ``hold`` makes every pull wait; ``fail`` may raise in its place.

    ``pulls`` lists the references in the order in which pulls began, ``most`` is how many ran at once,
    ``most_inspected`` how many inspections.
    """

    owner = "reconciler-here"

    def __init__(self, registry: FakeRegistry) -> None:
        self.pulls: list[str] = []
        self.logins: list[RegistryCredentials | None] = []
        self.removed: list[str] = []
        self.claims: list[str] = []
        self.in_use: set[str] = set()
        self.running = 0
        self.most = 0
        self.inspected = 0
        self.most_inspected = 0
        self.hold: asyncio.Event | None = None
        self.fail: Callable[[str], None] = lambda reference: None
        self.architecture = "amd64"
        self.size = 1000
        self.images: dict[str, ImageInfo] = {}
        self._registry = registry

    def has_own_rules(self, reference: ImageReference) -> bool:
        """Always: it asks the registry itself."""
        return True

    async def pull(self, reference: str, credentials: RegistryCredentials | None, served: str = "") -> None:
        """Pull from the registry."""
        assert not served
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
        """Add an image to the store."""
        digest = reference.partition("@")[2]
        self.images[reference] = ImageInfo(digest, (reference, *more), "linux", self.architecture, self.size, digest)

    def build(self, name: str, tag: str, digest: str) -> None:
        """Let an image be here under a tag and a digest, as one that was built here."""
        self.add(f"{name}@{digest}")
        self.images[f"{name}:{tag}"] = self.images[f"{name}@{digest}"]

    async def inspect(self, reference: str) -> ImageInfo | None:
        """The image, if it is here."""
        self.inspected += 1
        self.most_inspected = max(self.most_inspected, self.inspected)
        await asyncio.sleep(0)
        self.inspected -= 1
        return self.images.get(reference)

    async def list(self) -> list[ImageInfo]:
        """All images."""
        return list(self.images.values())

    async def claim(self, reference: str) -> None:
        """Keep one."""
        await asyncio.sleep(0)
        if reference not in self.images:
            raise ImageError(f"{reference}: image not known", missing=True)
        self.claims.append(reference)

    async def release(self, reference: str) -> bool:
        """End its claims; it goes if its name went before."""
        await asyncio.sleep(0)
        self.claims = [each for each in self.claims if each != reference]
        image = self.images.get(reference)
        return image is None or bool(image.references) or self._delete(reference)

    async def release_others(self, references: Collection[str]) -> None:
        """End other claims."""
        await asyncio.sleep(0)
        assert not self.running, "claims end during a pull"
        for each in set(self.claims) - set(references):
            await self.release(each)

    async def remove(self, reference: str, ours: Collection[str]) -> bool:
        """Remove one that has no other name."""
        assert reference not in self.claims, "it was not released"
        await asyncio.sleep(0)
        image = self.images.get(reference)
        return image is None or bool({*image.references} - {*ours}) or self._delete(reference)

    def untag(self, reference: str) -> None:
        """Remove the image under its name, as another program does."""
        if reference in self.claims:
            self.images[reference] = msgspec.structs.replace(self.images[reference], references=())
        else:
            del self.images[reference]

    def _delete(self, reference: str) -> bool:
        assert not self.running, "an image is removed during a pull"
        if reference not in self.in_use:
            self.removed.append(reference)
            del self.images[reference]
        return reference not in self.in_use
