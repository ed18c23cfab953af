"""Resolves tags: one request for each image at a time, shared by all workloads, with waits after failures."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from reconciler.clock import Clock
from reconciler.engines.images.attempts import PullAttempts
from reconciler.engines.images.manifests import ImageManifest, Platform, check_platform
from reconciler.engines.images.protocol import ImageSource, RegistryCredentials
from reconciler.engines.images.single_flight import SingleFlight
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.model.image_names import exact_hosts
from reconciler.settings import ImageSettings

SHARED_SECONDS = 5.0
"""Seconds for which an answer also counts for other requests for the same image with the same login."""
FOLLOWED_SECONDS = 300.0
"""Seconds for which any answer about a moved tag counts for its followers."""
MOST_REMEMBERED = 10_000
"""The most answers that are remembered; the oldest are forgotten first."""

K = TypeVar("K")
_Asked = tuple[ImageReference, RegistryCredentials | None]


class RegistryClient(ImageSource, Protocol):
    """The protocol of registry clients. All methods raise ImageError."""

    async def resolve(
        self, reference: ImageReference, credentials: RegistryCredentials | None, with_body: bool = False
    ) -> ImageManifest:
        """The manifest of a tag."""

    async def platforms(
        self, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> tuple[Platform, ...]:
        """The platforms of an index."""

    async def check(self, reference: ImageReference) -> None:
        """Raise unless the registry of the image may be asked."""

    def is_named(self, reference: ImageReference) -> bool:
        """Whether the settings name the registry of the image."""

    def conceal(self, reference: ImageReference, error: ImageError) -> ImageError:
        """The error of a store that could not reach the registry, as users may see it."""

    async def close(self) -> None:
        """Close all connections."""


class Resolved(NamedTuple):
    """The target of a tag at a moment of the monotonic clock."""

    manifest: ImageManifest
    at: float


class TagResolver:
    """Resolves tags for ``host``, the platform of this host."""

    def __init__(self, registry: RegistryClient, attempts: PullAttempts, clock: Clock, host: Platform) -> None:
        self._registry = registry
        self._attempts = attempts
        self._clock = clock
        self._host = host
        self._known: dict[_Asked, Resolved] = {}
        self._latest: dict[ImageReference, Resolved] = {}
        self._flights: SingleFlight[ImageManifest] = SingleFlight("the request for an image")
        self._fitting: set[str] = set()

    async def resolve(
        self, reference: ImageReference, credentials: RegistryCredentials | None, shared: float = SHARED_SECONDS
    ) -> ImageManifest:
        """The manifest of the tag of ``reference``, now or less than ``shared`` seconds ago.

        Raises ImageError; during a wait after a failure, the same error again.
        """
        asked = (reference, credentials)
        cached = self._latest.get(reference) if shared > SHARED_SECONDS else self._known.get(asked)
        if cached is not None and self._clock.monotonic() - cached.at < shared:
            return cached.manifest
        return await self._flights.run(asked, lambda: self._ask(reference, credentials))

    def latest(self, reference: ImageReference) -> Resolved | None:
        """The newest answer about ``reference``, with any login; None before the first."""
        return self._latest.get(reference)

    def forget(self, reference: ImageReference) -> None:
        """Forget the answers about ``reference``, so that the next request is sent."""
        self._latest.pop(reference, None)
        self._known = {asked: resolved for asked, resolved in self._known.items() if asked[0] != reference}

    async def check_platform(self, reference: ImageReference, credentials: RegistryCredentials | None) -> None:
        """Raise ImageError unless the index ``reference`` has an image for this host; requested once for each index."""
        if reference.digest not in self._fitting:
            available = await self._registry.platforms(reference, credentials)
            check_platform(str(reference), available, self._host)
            self._fitting.add(reference.digest)

    async def close(self) -> None:
        """Stop all requests."""
        await self._flights.close()
        await self._registry.close()

    async def _ask(self, reference: ImageReference, credentials: RegistryCredentials | None) -> ImageManifest:
        asked = (reference, credentials)
        self._attempts.check(asked, str(reference), reference.host)
        # Only an answer with a body explains an error, so a retry after a failure requests one.
        with_body = self._attempts.failures(asked) > 0
        try:
            manifest = await self._registry.resolve(reference, credentials, with_body)
        except ImageError as error:
            raise self._attempts.fail(asked, reference.host, error) from None
        self._attempts.succeed(asked)
        resolved = Resolved(manifest, self._clock.monotonic())
        _remember_tag(self._known, asked, resolved)
        _remember_tag(self._latest, reference, resolved)
        return manifest


def make_registry(settings: ImageSettings, clock: Clock) -> RegistryClient:
    """A client of the registries that ``settings`` permit."""
    # Its HTTP client takes long to import, and most processes never use a registry.
    from reconciler.engines.images.connection import RegistryConnection
    from reconciler.engines.images.registry import Registry

    named = exact_hosts((*settings.allowed, *filter(None, (settings.registry,))))
    return Registry(RegistryConnection(settings.insecure, clock, named=named))


def _remember_tag(cache: dict[K, Resolved], asked: K, resolved: Resolved) -> None:
    cache.pop(asked, None)
    cache[asked] = resolved
    while len(cache) > MOST_REMEMBERED:
        del cache[next(iter(cache))]
