"""The images of one location: resolved once for each version, pulled before a rollout, removed when unused."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.images.digests import DigestStore, ImagePin, VersionPins
from reconciler.engines.host.images.pull_proxy import PullProgress, PullProxy, ServedImage
from reconciler.engines.host.images.pulled import PulledImages, pulled_path
from reconciler.engines.host.images.puller import Puller, missing_here
from reconciler.engines.host.images.space import SWEEP_SECONDS, ImageSpace
from reconciler.engines.images.attempts import PullAttempts
from reconciler.engines.images.credentials import Keychain
from reconciler.engines.images.manifests import Platform, host_platform
from reconciler.engines.images.protocol import ImageStore, RegistryCredentials
from reconciler.engines.images.refresh import OnError, OnMoved, TagRefresh, WatchedTag
from reconciler.engines.images.tags import FOLLOWED_SECONDS, SHARED_SECONDS, RegistryClient, TagResolver, make_registry
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.image_reference import (
    ImageError,
    ImageReference,
    check_permission,
    parse_reference,
)
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.settings import ImageSettings

UNREACHED = re.compile(
    r"dial tcp|lookup .*: |connection (refused|reset)|no route to host|unreachable|timeout|tls: |x509: |\bEOF\b"
    r"|server gave HTTP response|malformed HTTP",
    re.IGNORECASE,
)
"""Errors of the store about the way to a registry; those of the registry itself are words of its own."""


class WorkloadImages(msgspec.Struct, frozen=True):
    """The images of one version of a workload by container, as in its manifest.

    ``pull_secrets`` are those of its GVC, in their order. ``dynamic`` is ``supportDynamicTags``.
    """

    key: Key
    version: int
    containers: Mapping[str, str]
    pull_secrets: tuple[Key, ...] = ()
    dynamic: bool = False


class ImageEvents(msgspec.Struct, frozen=True):
    """Callbacks of the service. ``in_use`` returns references with digests that replicas or rollbacks still need.

    ``expired`` gets the reference of an image that was removed as unused, and ``progress`` a workload that more of an
    image was pulled for.
    """

    moved: OnMoved
    error: OnError
    in_use: Callable[[], Collection[str]]
    expired: Callable[[str], None] = lambda _reference: None
    progress: Callable[[Key], None] = lambda _key: None


class ImageContext(msgspec.Struct, frozen=True):
    """The environment of the service. ``root`` is the directory of the location."""

    root: Path
    org: str
    settings: ImageSettings
    secrets: SecretReader
    clock: Clock
    rng: random.Random
    host: Platform = msgspec.field(default_factory=host_platform)


class _Resolved(NamedTuple):
    pin: ImagePin
    is_index: bool = False


class ImageService:
    """Provides the images of all workloads of a location from ``store``."""

    def __init__(
        self, context: ImageContext, store: ImageStore, events: ImageEvents, registry: RegistryClient | None = None
    ) -> None:
        self._context = context
        self._events = events
        self._ensuring: dict[object, set[str]] = {}
        self._pulling: dict[Key, set[str]] = {}
        self._ensured: dict[Key, WorkloadImages] = {}
        self._reported: dict[Key, str] = {}
        self._digests = DigestStore(context.root / "images" / "digests")
        attempts = PullAttempts(context.clock, context.rng)
        client = registry or make_registry(context.settings, context.clock)
        self._registry = client
        self._resolver = TagResolver(client, attempts, context.clock, context.host)
        self._keychain = Keychain(context.secrets, context.settings.credentials)
        pulled = PulledImages(pulled_path(context.root))
        self._store = store
        self._proxy = PullProxy(client, store.owner, self._report_progress)
        self._puller = Puller(store, pulled, attempts, context.host, self._serve)
        self._refresh = TagRefresh(self._resolver, self._keychain, context.clock, context.rng)
        self._space = ImageSpace(store, self._puller, pulled, context.clock, self._in_use)

    async def ensure(self, images: WorkloadImages, *, follow: bool = False) -> dict[str, str]:
        """The reference with digest to run for each container; all images are on this host then.

        The digests of a version are resolved once. With ``follow``, the last observed digests of its tags replace those
        of the version when all images are here.

        Raises EngineError: InvalidImageName, ImageNotAllowed, ImagePullFailed, ImagePlatformMismatch, those of secrets
        and of the disk.
        After a failure an early call raises the same error again and asks no registry; ``wait`` of the error is how
        many seconds that lasts.
        """
        references = {name: self._permit(text) for name, text in images.containers.items()}
        resolutions = await self._resolve(images, references, follow)
        pins = {name: msgspec.structs.replace(resolved.pin, pulled=True) for name, resolved in resolutions.items()}
        references_pulled = {pin.pinned for pin in pins.values()}
        with self._using(references_pulled), self._showing(images.key, references_pulled):
            pulls = (self._pull(images, name, resolved) for name, resolved in resolutions.items())
            _raise_first(await asyncio.gather(*pulls, return_exceptions=True))
            self._pin(images, pins)
        self._ensured[images.key] = images
        self._watch(images, references, pins)
        return {name: pin.pinned for name, pin in pins.items()}

    def find_progress(self, key: Key) -> PullProgress:
        """How far the pulls for a workload are together; of nothing where the daemon serves none."""
        found = (self._proxy.find_progress(reference) for reference in self._pulling.get(key, ()))
        return sum(found, PullProgress())

    def find_pins(self, key: Key, version: int) -> VersionPins | None:
        """The digests of a version, None before any is resolved. They need not be on this host."""
        return self._digests.get(key, version)

    def adopt(self, images: WorkloadImages, running: Mapping[str, str]) -> None:
        """Pin the images of a version that is ``running``, by container, if its pins were lost."""
        version_pins = self._digests.get(images.key, images.version)
        lost = [
            name
            for name in images.containers
            if name in running and name not in (version_pins.containers if version_pins else ())
        ]
        # What is not the name of an image, or cannot be written, is reported when the images are provided.
        with suppress(EngineError):
            pairs = {name: (self._parse(images.containers[name]), self._parse(running[name])) for name in lost}
            pins = {
                name: ImagePin(images.containers[name], str(reference), str(pinned), pulled=True)
                for name, (reference, pinned) in pairs.items()
                if pinned.digest and pinned.name == reference.name
            }
            self._pin(images, pins)

    def forget(self, key: Key, remaining: Collection[int] = ()) -> None:
        """Forget the digests of versions that are not ``remaining``; follow no tag if none is. Raises EngineError."""
        if not remaining:
            self._refresh.watch(key, ())
        if key in self._ensured and self._ensured[key].version not in remaining:
            del self._ensured[key]
            self._reported.pop(key, None)
        self._digests.forget(key, remaining)

    def forget_others(self, keys: Collection[Key]) -> None:
        """Forget all workloads except ``keys``: those that ended while no daemon ran. Raises EngineError."""
        for key in self._digests.keys() - set(keys):
            self.forget(key)

    async def run(self) -> None:
        """Follow tags, remove unused images, and pull again those that others removed, until cancelled."""
        await asyncio.gather(self._refresh.run(self._events.moved, self._events.error), self._keep_space())

    async def close(self) -> None:
        """Stop all pulls and requests. ``run`` is cancelled by its caller."""
        await self._puller.close()
        await self._proxy.close()
        await self._resolver.close()

    def _parse(self, text: str) -> ImageReference:
        return parse_reference(text, self._context.org, self._context.settings.registry)

    def _permit(self, text: str) -> ImageReference:
        """The image that ``text`` names. Raises ImageError if ``images.allowed`` has no pattern for it."""
        reference = self._parse(text)
        if not reference.is_local:
            check_permission(reference, self._context.settings.patterns)
        return reference

    async def _resolve(
        self, images: WorkloadImages, references: Mapping[str, ImageReference], follow: bool
    ) -> dict[str, _Resolved]:
        """The pin of each container. Resolved tags stay pinned, even if another container's tag fails."""
        version_pins = self._digests.get(images.key, images.version)
        pins = dict(version_pins.containers) if version_pins is not None else {}
        resolutions = {
            name: _Resolved(pins[name])
            for name, reference in references.items()
            if name in pins and pins[name].reference == str(reference) and not (follow and not reference.digest)
        }
        missing = [name for name in references if name not in resolutions]
        asked = await asyncio.gather(
            *(self._ask(images, name, references[name], follow) for name in missing), return_exceptions=True
        )
        resolutions |= {
            name: resolution
            for name, resolution in zip(missing, asked, strict=True)
            if isinstance(resolution, _Resolved)
        }
        if not follow:
            self._pin(images, {name: resolved.pin for name, resolved in resolutions.items()})
        _raise_first(asked)
        return resolutions

    async def _ask(self, images: WorkloadImages, name: str, reference: ImageReference, follow: bool) -> _Resolved:
        text, is_index, digest = images.containers[name], False, reference.digest
        if not digest and reference.is_local:
            digest = await self._puller.digest(reference)
        elif not digest:
            login = self._keychain.find(reference, images.pull_secrets)
            manifest = await self._resolver.resolve(reference, login, FOLLOWED_SECONDS if follow else SHARED_SECONDS)
            digest, is_index = manifest.digest, manifest.is_index
        return _Resolved(ImagePin(text, str(reference), str(reference.at(digest))), is_index)

    async def _pull(self, images: WorkloadImages, name: str, resolved: _Resolved) -> None:
        reference = self._parse(resolved.pin.reference)
        pinned = self._parse(resolved.pin.pinned)
        if await self._puller.is_present(pinned):
            return
        if reference.is_local:
            raise missing_here(pinned)
        login = self._keychain.find(reference, images.pull_secrets)
        try:
            await self._puller.pull(pinned, login, self._resolver.check_platform if resolved.is_index else None)
        except ImageError as error:
            if not error.missing and UNREACHED.search(str(error)):
                raise self._registry.conceal(pinned, error) from None
            if error.missing and not resolved.pin.pulled and not reference.digest:
                # The tag moved and its former digest was deleted, before anything with that digest ever ran.
                self._digests.unpin(images.key, images.version, name, resolved.pin)
                self._resolver.forget(reference)
            raise

    @asynccontextmanager
    async def _serve(
        self, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> AsyncIterator[ServedImage | None]:
        """Serve the image to the store, unless the operator decides what the store asks: by settings or its own."""
        if self._registry.is_named(reference) or self._store.has_own_rules(reference):
            # The store resolves the name by itself, and asks whatever it gets.
            await self._registry.check(reference)
            yield None
            return
        async with self._proxy.serve(reference, credentials) as served:
            yield served

    def _pin(self, images: WorkloadImages, pins: Mapping[str, ImagePin]) -> None:
        if pins:
            self._digests.pin(images.key, images.version, pins, self._context.clock.now())

    def _watch(
        self, images: WorkloadImages, references: Mapping[str, ImageReference], pins: Mapping[str, ImagePin]
    ) -> None:
        tags = [
            WatchedTag(
                images.key, images.version, name, reference, self._parse(pins[name].pinned).digest, images.pull_secrets
            )
            for name, reference in references.items()
            if images.dynamic and not reference.digest and not reference.is_local
        ]
        self._refresh.watch(images.key, tags)

    @contextmanager
    def _using(self, references: set[str]) -> Iterator[None]:
        """Protect ``references`` from removal within the block."""
        mark = object()
        self._ensuring[mark] = references
        try:
            yield
        finally:
            del self._ensuring[mark]

    @contextmanager
    def _showing(self, key: Key, references: set[str]) -> Iterator[None]:
        """Report the progress of pulls of ``references`` within the block as that of the workload ``key``."""
        self._pulling[key] = references
        try:
            yield
        finally:
            if self._pulling.get(key) is references:
                del self._pulling[key]

    def _report_progress(self, reference: ImageReference) -> None:
        for key, references in list(self._pulling.items()):
            if str(reference) in references:
                self._events.progress(key)

    def _in_use(self) -> set[str]:
        return self._digests.references().union(self._events.in_use(), *self._ensuring.values())

    async def _keep_space(self) -> None:
        settings = self._context.settings
        budget = settings.budget << 20 if settings.budget is not None else None
        while True:
            await self._context.clock.sleep(SWEEP_SECONDS)
            # If the store is unavailable or the disk is full, the start of containers reports it.
            with suppress(EngineError), contain_bugs("removal of images"):
                for reference in await self._space.sweep(settings.keep, budget):
                    self._events.expired(reference)
                await asyncio.gather(*map(self._restore, list(self._ensured.values())))

    async def _restore(self, images: WorkloadImages) -> None:
        """Pull images again that others removed by force: the next replica needs them."""
        pins = self._digests.get(images.key, images.version)
        current_pins = {name: pin for name, pin in pins.containers.items() if name in images.containers} if pins else {}
        with self._using({pin.pinned for pin in current_pins.values()}):
            try:
                pulls = (self._pull(images, name, _Resolved(pin)) for name, pin in current_pins.items())
                _raise_first(await asyncio.gather(*pulls, return_exceptions=True))
            except EngineError as error:
                if self._ensured.get(images.key) == images and self._reported.get(images.key) != str(error):
                    self._reported[images.key] = str(error)
                    self._events.error(images.key, error)
            else:
                self._reported.pop(images.key, None)


def _raise_first(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result
