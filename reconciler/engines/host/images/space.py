"""Removes images that nothing uses any more: after a time, or at once above a budget, the oldest first."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reconciler.clock import Clock
from reconciler.engines.host.images.protocol import ImageInfo, ImageStore
from reconciler.engines.host.images.pulled import PulledImage, PulledImages
from reconciler.engines.host.images.puller import Puller

SWEEP_SECONDS = 600.0
"""Seconds between two sweeps."""


class ImageSpace:
    """Sweeps the images that ``pulled`` records: ``keep`` in seconds, ``budget`` in bytes, None for no bound.

    ``in_use`` returns the references that must stay. Images of others are never removed, and neither is one of ours
    that somebody gave another name to.
    """

    def __init__(
        self,
        store: ImageStore,
        puller: Puller,
        pulled: PulledImages,
        clock: Clock,
        in_use: Callable[[], Collection[str]],
    ) -> None:
        self._store = store
        self._puller = puller
        self._pulled = pulled
        self._clock = clock
        self._in_use = in_use

    async def sweep(self, keep: float, budget: int | None) -> list[str]:
        """Remove what is due; return the references. Raises EngineError."""
        here = {name: image for image in await self._store.list() for name in image.references}
        images = self._observe(here)
        self._pulled.replace(images)
        ours = {name: image for name, image in images.items() if name in here and self._is_ours(here[name], images)}
        unused = sorted((image.unused_since, name) for name, image in ours.items() if image.unused_since is not None)
        excess = sum({here[name].id: here[name].size for name in ours}.values()) - (budget or 0)
        removed = []
        for since, name in unused:
            is_over = budget is not None and excess > 0
            if (is_over or self._clock.now() - since >= keep) and await self._remove(name):
                excess -= here[name].size
                removed.append(name)
        if removed:
            rest = self._pulled.images()
            self._pulled.replace({name: image for name, image in rest.items() if name not in removed})
        return removed

    def _observe(self, here: Collection[str]) -> dict[str, PulledImage]:
        """The recorded images that are here, each with the time since which it is unused."""
        now, used = self._clock.now(), self._in_use()
        found = {}
        for name, image in self._pulled.images().items():
            since = image.unused_since
            if name in used:
                found[name] = PulledImage()
            elif name in here:
                # A clock that was set back must not make an image older than it is.
                found[name] = PulledImage(now if since is None else min(since, now))
        return found

    def _is_ours(self, found: ImageInfo, images: Collection[str]) -> bool:
        """Whether no other name of the image shows that somebody else uses it: a tag, or another repository."""
        repositories = {name.partition("@")[0] for name in images}
        return all(name.partition("@")[0] in repositories and "@" in name for name in found.references)

    async def _remove(self, name: str) -> bool:
        return await self._puller.remove(name, lambda: name not in self._in_use())
