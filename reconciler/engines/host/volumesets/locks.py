"""One operation at a time on each volume of a location."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from reconciler.engines.host.volumes.protocol import VolumeId


class VolumeLocks:
    """A lock for each volume."""

    def __init__(self) -> None:
        self._locks: defaultdict[VolumeId, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def exclusive(self, *volumes: VolumeId) -> AsyncIterator[None]:
        """Do nothing else to ``volumes`` meanwhile; all callers lock them in the same order, so none waits for ever."""
        async with AsyncExitStack() as stack:
            for each in sorted({*volumes}):
                await stack.enter_async_context(self._locks[each])
            yield
