"""Which replica holds which volume: attached when it starts, detached when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

_REPLICA = " replica "


def holder_name(key: Key, replica: str) -> str:
    """A replica, as the lock of a volume names it."""
    return f"{key}{_REPLICA}{replica}"


def parse_holder(holder: str) -> tuple[Key, str]:
    """The workload and the name of the replica ``holder``."""
    key, _, replica = holder.partition(_REPLICA)
    return Key.parse(key), replica


def lock_message(volume: VolumeId, holder: str) -> str:
    """The message for a lock that was removed while ``holder`` used the volume."""
    return f"the lock of {volume} was missing, though {holder} uses it: it is locked again"


class Attachments:
    """The attached volumes of one location. ``refresh`` reads a volume set again, of which a volume has changed."""

    def __init__(self, store: VolumeStore, signals: LocationSignals, refresh: Callable[[Key], Awaitable[None]]) -> None:
        self._store = store
        self._signals = signals
        self._refresh = refresh
        self._holders: dict[VolumeId, str] = {}
        self._orphans: set[str] = set()
        """Holders that have ended, and whose volumes could not be detached."""
        self._reserved: dict[VolumeId, str] = {}
        self._detached = asyncio.Event()

    async def open(self) -> None:
        """Find the volumes that an earlier daemon attached. Raises EngineError."""
        self._holders = await asyncio.to_thread(self._store.holders)
        self._reserved.clear()
        self._orphans.clear()

    def holder(self, volume: VolumeId) -> str:
        """The replica that holds a volume; "" if none does."""
        return self._holders.get(volume, "")

    def list_attached(self, volumeset: Key) -> dict[VolumeId, str]:
        """The attached volumes of a volume set, with their holders."""
        return {volume: holder for volume, holder in self._holders.items() if volume.volumeset == volumeset}

    async def attach(self, volume: VolumeId, volume_spec: VolumeSpec, holder: str, owner: Owner) -> None:
        """Attach a volume to a replica; it is created if it has no data.

        Raises EngineError, such as VolumeInUse, and VolumeChanging while a command changes the volume.
        """
        if volume in self._reserved:
            message = f"{volume} {self._reserved[volume]}: it is free afterwards"
            raise EngineError(message, reason=Reason.VOLUME_CHANGING)
        former = self._holders.get(volume, holder)
        if former != holder and await self.detach_orphan(volume):
            former = holder
        if former != holder:
            raise EngineError(
                f"{volume} is attached to {former}: it is free when that has ended", reason=Reason.VOLUME_IN_USE
            )
        fresh = volume not in self._holders
        self._holders[volume] = holder
        try:
            await asyncio.to_thread(self._store.attach, volume, volume_spec, holder, owner)
        except EngineError:
            if fresh:
                del self._holders[volume]
                self.retry()
            raise
        await self._refresh(volume.volumeset)

    async def lock_again(self, volume: VolumeId) -> str:
        """Lock an attached volume whose lock is missing; return its holder, "" if there is nothing to do.

        Raises EngineError.
        """
        holder = self.holder(volume)
        if not holder or not await asyncio.to_thread(self._store.lock_again, volume, holder):
            return ""
        if self.holder(volume) != holder:
            # It was detached meanwhile.
            await asyncio.to_thread(self._store.detach, volume, holder)
            return ""
        return holder

    async def detach(self, holder: str) -> None:
        """Detach all volumes of an ended replica. Raises EngineError."""
        for volume in [volume for volume, text in self._holders.items() if text == holder]:
            await asyncio.to_thread(self._store.detach, volume, holder)
            self._holders.pop(volume, None)
            self.retry()
            await self._refresh(volume.volumeset)

    async def prune(self, holders: Collection[str]) -> None:
        """Detach the volumes of replicas other than ``holders``, which a crash may have left.

        One that cannot be detached, since a program uses it or its record cannot be read, waits for its next use.
        """
        for holder in set(self._holders.values()) - set(holders):
            try:
                await self.detach(holder)
            except EngineError:
                self._orphans.add(holder)

    async def detach_orphan(self, volume: VolumeId) -> bool:
        """Whether ``volume`` is detached now from a holder that has ended. Raises EngineError if it cannot be."""
        holder = self.holder(volume)
        if holder not in self._orphans:
            return False
        await self.detach(holder)
        self._orphans.discard(holder)
        return True

    @contextmanager
    def reserve(self, volumes: Iterable[VolumeId], purpose: str) -> Iterator[None]:
        """Let no replica attach ``volumes`` meanwhile; ``purpose`` completes a sentence about the volume."""
        chosen = dict.fromkeys(volumes, purpose)
        self._reserved |= chosen
        try:
            yield
        finally:
            for volume in chosen:
                self._reserved.pop(volume, None)
            self.retry()

    async def until_detached(self, volume: VolumeId) -> None:
        """Wait until no replica holds a volume."""
        while self.holder(volume):
            self._detached.clear()
            await self._detached.wait()

    def retry(self) -> None:
        """Let replicas that were refused a volume try again."""
        self._detached.set()
        self._signals.retry_starts()
