"""Pulls images: each digest once at a time, four at once, never while an image is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from weakref import WeakValueDictionary

from reconciler.engines.host.images.pull_proxy import ServedImage
from reconciler.engines.host.images.pulled import PulledImages
from reconciler.engines.images.attempts import PullAttempts
from reconciler.engines.images.manifests import Platform, check_platform
from reconciler.engines.images.protocol import ImageInfo, ImageStore, RegistryCredentials
from reconciler.engines.images.single_flight import SingleFlight
from reconciler.engines.workload.image_reference import ImageError, ImageReference

PARALLEL = 4
"""The number of pulls at once."""


Serve = Callable[[ImageReference, RegistryCredentials | None], AbstractAsyncContextManager[ServedImage | None]]
"""Serves an image to the store within a block; None if the store asks the registry itself."""
Check = Callable[[ImageReference, RegistryCredentials | None], Awaitable[None]]
"""Raises ImageError if an index has no image for this host."""


class Puller:
    """Pulls into ``store`` for ``host``, the platform of this host, and records the images in ``pulled``."""

    def __init__(
        self, store: ImageStore, pulled: PulledImages, attempts: PullAttempts, host: Platform, serve: Serve
    ) -> None:
        self._store = store
        self._serve = serve
        self._pulled = pulled
        self._attempts = attempts
        self._host = host
        self._flights: SingleFlight[None] = SingleFlight("the pull of an image")
        self._views: SingleFlight[ImageInfo | None] = SingleFlight("the inspection of an image")
        self._digests: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._claimed: set[str] = set()
        self._slots = asyncio.Semaphore(PARALLEL)
        self._removal = asyncio.Lock()
        self._running = 0

    async def is_present(self, reference: ImageReference) -> bool:
        """Whether the image is here. Raises ImageError if it is not made for this host."""
        image = await self._views.run(reference, lambda: self._inspect(reference))
        self._check(reference, image)
        return image is not None

    async def digest(self, reference: ImageReference) -> str:
        """The digest of an image of this host. Raises ImageError if it is not here."""
        image = await self._store.inspect(str(reference))
        if image is None or not image.digest:
            raise missing_here(reference)
        return image.digest

    async def pull(
        self, reference: ImageReference, credentials: RegistryCredentials | None, check: Check | None
    ) -> None:
        """Pull ``reference``, which has a digest, unless it is here; ``check`` is called before. Raises EngineError."""
        work = (reference, credentials)
        await self._flights.run(work, lambda: self._provide(reference, credentials, check))

    async def remove(self, reference: str, unused: Callable[[], bool]) -> bool:
        """Remove an image if it is ``unused``; False if that is impossible now, also during any pull."""
        async with self._removal:
            if self._running or not unused():
                return False
            image = self._pulled.images()[reference]
            self._claimed.discard(reference)
            released = await self._store.release(reference)
            if not released or not image.pulled:
                return released
            return await self._store.remove(reference, self._pulled.images())

    async def release_lost(self) -> None:
        """End the claims that no record has; does nothing during a pull. Raises ImageError."""
        async with self._removal:
            if not self._running:
                await self._store.release_others(self._pulled.images())

    async def close(self) -> None:
        """Stop all pulls."""
        await self._flights.close()
        await self._views.close()

    async def _provide(
        self, reference: ImageReference, credentials: RegistryCredentials | None, check: Check | None
    ) -> None:
        lock = self._digests.setdefault(reference.digest, asyncio.Lock())
        async with lock:
            image = await self._inspect(reference)
            if image is None:
                image = await self._attempt(reference, credentials, check)
        self._check(reference, image)

    def _check(self, reference: ImageReference, image: ImageInfo | None) -> None:
        if image is not None and image.os:
            check_platform(str(reference), (Platform(image.os, image.architecture),), self._host)

    async def _inspect(self, reference: ImageReference) -> ImageInfo | None:
        name = str(reference)
        async with self._without_removals():
            image = await self._store.inspect(name)
            if image is None:
                self._claimed.discard(name)
                return None
            # Others may remove images that they pulled, so claim this one.
            self._pulled.add(name, pulled=False)
            return image if await self._claim(name) else None

    @asynccontextmanager
    async def _without_removals(self) -> AsyncIterator[None]:
        """Let no image be removed within the block; any number of inspections and pulls go on at the same time."""
        async with self._removal:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _claim(self, name: str) -> bool:
        """Claim an image that is here, once for each life of the daemon; whether it still is here."""
        if name in self._claimed:
            return True
        try:
            await self._store.claim(name)
        except ImageError as error:
            if error.missing:
                return False
            raise
        self._claimed.add(name)
        return True

    async def _attempt(
        self, reference: ImageReference, credentials: RegistryCredentials | None, check: Check | None
    ) -> ImageInfo:
        tried = (reference, credentials)
        self._attempts.check(tried, str(reference), reference.host)
        try:
            async with self._slots:
                image = await self._pull(reference, credentials, check)
        except ImageError as error:
            raise self._attempts.fail(tried, reference.host, error) from None
        self._attempts.succeed(tried)
        return image

    async def _pull(
        self, reference: ImageReference, credentials: RegistryCredentials | None, check: Check | None
    ) -> ImageInfo:
        if check is not None:
            await check(reference, credentials)
        async with self._without_removals():
            name = str(reference)
            self._pulled.add(name, pulled=True)
            await self._fetch(reference, credentials)
            image = await self._store.inspect(name) if await self._claim(name) else None
        if image is None:
            raise ImageError(f"the image {reference} was pulled and is not here: another program removed it")
        return image

    async def _fetch(self, reference: ImageReference, credentials: RegistryCredentials | None) -> None:
        async with self._serve(reference, credentials) as served:
            if served is None:
                await self._store.pull(str(reference), credentials)
                return
            try:
                await self._store.pull(str(reference), None, served.name)
            except ImageError as error:
                # The store only knows that an answer did not come.
                raise served.error or error from None


def missing_here(reference: ImageReference) -> ImageError:
    """The error for a local image that this host does not have."""
    return ImageError(
        f"the image {reference} is not on this host: build or load it here, or write the registry that has it",
        missing=True,
    )
