"""Removes unused images: after a time, or at once above a budget, the oldest first."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reconciler.clock import Clock
from reconciler.engines.host.images.pulled import PulledImage, PulledImages
from reconciler.engines.host.images.puller import Puller
from reconciler.engines.images.protocol import ImageStore
from reconciler.engines.workload.image_reference import ImageError
from reconciler.times import FIRST_DAY

SWEEP_SECONDS = 600.0
"""Seconds between two sweeps."""


class ImageSpace:
    """Sweeps the images that ``pulled`` records.

    ``in_use`` returns the references that must stay. Images of others are never changed. One of ours with another name
    is only released: it uses space until the other owner removes it.
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
        """Remove images that are unused for ``keep`` seconds, and those that make unused images exceed ``budget``
        bytes.

        Returns the references of those that were here, and were pulled for this location. Raises EngineError.
        """
        await self._puller.release_lost()
        here = {name: image for image in await self._store.list() for name in image.references}
        images = self._observe(here)
        self._pulled.replace(images)
        unused = sorted((image.unused_since, name) for name, image in images.items() if image.unused_since is not None)
        # Images with other owners use their space in any case.
        own = [name for _, name in unused if name in here and images.keys() >= {*here[name].references}]
        sizes = {name: here[name].size for name in own}
        excess = sum({here[name].id: here[name].size for name in own}.values()) - (budget or 0)
        removed, expiry = [], self._clock.expiry()
        for since, name in unused:
            is_over = budget is not None and excess > 0 and name in sizes
            if (is_over or expiry.is_over(since + keep, since)) and await self._remove(name):
                excess -= sizes.get(name, 0)
                removed.append(name)
        if removed:
            rest = self._pulled.images()
            self._pulled.replace({name: image for name, image in rest.items() if name not in removed})
        return [name for name in removed if name in here and images[name].pulled]

    def _observe(self, here: Collection[str]) -> dict[str, PulledImage]:
        """The recorded images, each with the time since which it is unused."""
        now, used = self._clock.now(), self._in_use()
        observed = {}
        for name, image in self._pulled.images().items():
            since = image.unused_since
            if name in used:
                observed[name] = PulledImage(pulled=image.pulled)
            elif name in here:
                # Setting the clock must not make an image older than it is.
                observed[name] = PulledImage(
                    now if since is None or since < FIRST_DAY else min(since, now), image.pulled
                )
            else:
                # Others removed it, or the pull failed. A remaining claim is released at once.
                observed[name] = PulledImage(0.0, image.pulled)
        return observed

    async def _remove(self, name: str) -> bool:
        """Whether the image is gone; one that cannot be removed does not stop the sweep."""
        try:
            return await self._puller.remove(name, lambda: name not in self._in_use())
        except ImageError:
            return False
