"""The volume sets of one location: who uses them is derived from the records, their volumes are in the store."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

import msgspec

from reconciler.engines.host.decisions.volumes import existing_volumes, list_limitations
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.volumes.protocol import StoredVolume, VolumeSpec
from reconciler.engines.host.volumesets.attachments import Attachments, lock_message
from reconciler.engines.host.volumesets.releases import Releases
from reconciler.engines.host.volumesets.replacements import Replacements
from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volumes import VolumeId, VolumeSetState, read_volumes
from reconciler.engines.workload.volume_fill import VolumeFill
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Specification, read_keep_last, read_specification
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason


class KnownVolumeSet(msgspec.Struct, frozen=True):
    """A volume set that was applied here. ``claimed`` says who uses it, ``stored`` what exists, ``used`` in bytes.

    ``read`` is the number of the read that found ``stored``; later reads have higher ones.
    """

    seen: Observation
    spec: Specification
    claimed: VolumeSetState
    stored: tuple[StoredVolume, ...] = ()
    used: dict[int, int] = {}
    read: int = 0
    keep_last: int | None = None
    """How many snapshots of the schedule each volume keeps; None for all that have not expired."""

    @property
    def observation(self) -> Observation:
        """The volume set as it is."""
        state = existing_volumes(self.claimed, self.stored, self.used)
        health = Health.UNHEALTHY if any(volume.damage or volume.lost for volume in self.stored) else Health.HEALTHY
        return msgspec.structs.replace(self.seen, health=health, state=msgspec.json.encode(state))


class VolumeLocks:
    """A lock for each volume: one operation on it at a time."""

    def __init__(self) -> None:
        self._locks: defaultdict[VolumeId, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def exclusive(self, *volumes: VolumeId) -> AsyncIterator[None]:
        """Do nothing else to ``volumes`` meanwhile; all callers lock them in the same order, so none waits for ever."""
        async with AsyncExitStack() as stack:
            for volume in sorted({*volumes}):
                await stack.enter_async_context(self._locks[volume])
            yield


class VolumeSets:
    """Observes volume sets and deletes their volumes; a volume is created when a replica mounts it."""

    def __init__(self, claims: VolumeClaims, releases: Releases, signals: LocationSignals) -> None:
        self.known: dict[Key, KnownVolumeSet] = {}
        self.store = releases.store
        self.fill = VolumeFill()
        self.attachments = Attachments(releases.store, signals, self._refresh_later)
        self.releases = releases
        self.locks = VolumeLocks()
        self._replacements = Replacements(releases.root)
        self.claims = claims
        self.signals = signals
        self._open = False
        self._opening = asyncio.Lock()
        self._reads = count(1)

    async def open(self, records: Iterable[Record]) -> None:
        """Continue from the records of the volume sets. Raises EngineError."""
        self.known.clear()
        self._open = False
        for record in records:
            await self._open_store(record.key)
            self._add(as_recorded(record), self.claims.recorded_state(record), record.body)
            await self._refresh_later(record.key)

    async def _open_store(self, key: Key) -> None:
        """Repair what a crash left, before the first use; a host without volume sets is spared it."""
        async with self._opening:
            if self._open:
                return
            for report in await asyncio.to_thread(self.store.open):
                self.signals.report(key, Reason.VOLUMES_CHECKED, report)
            await self.attachments.open()
            await self._replacements.open()
            self._open = True

    def observations(self) -> Iterator[Observation]:
        """All volume sets."""
        return (volume_set.observation for volume_set in self.known.values())

    def update(self, seen: Iterable[Observation]) -> tuple[Observation, ...]:
        """Change who uses volume sets, as the states in ``seen`` say; returns how they are then."""
        observations = []
        for observation in seen:
            volume_set, claimed = self.known.get(observation.key), read_volumes(observation.state)
            if volume_set is not None and claimed is not None:
                self.known[observation.key] = volume_set = msgspec.structs.replace(volume_set, claimed=claimed)
                observations.append(volume_set.observation)
        return tuple(observations)

    def limitations(self, volumesets: Iterable[Key]) -> Iterator[str]:
        """A sentence for each thing that the volumes of ``volumesets`` cannot have on this host."""
        volume_sets = [known_volume_set for key in volumesets if (known_volume_set := self.known.get(key)) is not None]
        return (
            list_limitations([volume for volume_set in volume_sets for volume in volume_set.stored])
            if volume_sets
            else iter(())
        )

    async def attach(self, volume: VolumeId, holder: str, version: int, owner: Owner) -> None:
        """Attach a volume to a replica of ``version``, after a snapshot if that is new. Raises EngineError."""
        volume_set = self.known.get(volume.volumeset)
        if volume_set is None:
            raise EngineError(
                f"there is no {volume.volumeset} at this location yet: it is mounted when it is applied",
                reason=Reason.VOLUME_UNAVAILABLE,
            )
        if self._replacements.is_open(volume.volumeset):
            raise EngineError(f"{volume} is being replaced: it is free afterwards", reason=Reason.VOLUME_CHANGING)
        volume_spec = VolumeSpec(float(volume_set.spec.initial_capacity), volume_set.spec.file_system_type)
        await self.releases.prepare(volume, holder, version, volume_set.spec)
        await self.attachments.attach(volume, volume_spec, holder, owner)

    async def attach_again(self, volume: VolumeId, holder: str, version: int, owner: Owner) -> None:
        """As ``attach``, for a replica that runs, though nothing shows that it has the volume. Raises EngineError."""
        if not self.attachments.holder(volume) and volume.volumeset in self.known:
            await self.attach(volume, holder, version, owner)
            self.signals.report(volume.volumeset, Reason.VOLUMES_CHECKED, lock_message(volume, holder))

    async def perform(self, step: Step) -> Outcome:
        """Perform a step on a volume set. Raises EngineError if its volumes cannot be deleted."""
        key, past = step.key, self.claims.record(step.key)
        await self._open_store(key)
        spec = read_specification(past.body) if past is not None else Specification()
        if step.action is Action.DELETE:
            for volume in self.attachments.list_attached(key):
                await self.attachments.detach_orphan(volume)
            if attached := self.attachments.list_attached(key):
                return self._waiting(step, attached)
            await self._drop(key, spec)
            await self._replacements.forget(key)
            return Outcome(step.id, Result.APPLIED)
        replaces = step.action is Action.REPLACE and past is not None and past.digest != step.digest
        if replaces:
            self._replacements.check()
        # A crash may come between the end of the replacement and its record: then its new volumes stay.
        if replaces and not self._replacements.is_done(key, step.digest):
            await self._replacements.begin(key, step.digest)
            await self._replace(key, spec)
        past = None if replaces else past
        seen = Observation(key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)
        self._add(seen, self.claims.state(step, past), step.body)
        if self._replacements.is_open(key):
            await self._replacements.finish(key)
            self.attachments.retry()
        elif not self._replacements.is_done(key, step.digest):
            await self._replacements.forget(key)
        await self.refresh(key)
        return Outcome(step.id, Result.APPLIED, seen=self.known[key].observation)

    def used_bytes(self, volume: VolumeId) -> int:
        """Bytes that a volume uses, as they were last measured."""
        volume_set = self.known.get(volume.volumeset)
        return volume_set.used.get(volume.index, 0) if volume_set is not None else 0

    def set_used(self, volume: VolumeId, used: int) -> None:
        """Set the bytes that a volume uses."""
        volume_set = self.known.get(volume.volumeset)
        if volume_set is not None and volume_set.used.get(volume.index) != used:
            self.known[volume.volumeset] = msgspec.structs.replace(
                volume_set, used={**volume_set.used, volume.index: used}
            )
            self.signals.report_change()

    async def refresh(self, key: Key) -> None:
        """Read what exists of a volume set. Raises EngineError."""
        read = next(self._reads)
        stored = await asyncio.to_thread(self.store.list, key)
        volume_set = self.known.get(key)
        # Threads end in any order: what was read before must not replace what was read after a change.
        if volume_set is None or read < volume_set.read:
            return
        self.known[key] = msgspec.structs.replace(volume_set, stored=stored, read=read)
        if volume_set.stored != stored:
            self.signals.report_change()

    def _add(self, seen: Observation, state: bytes, body: bytes) -> None:
        claimed = read_volumes(state) or VolumeSetState(seen.location)
        self.fill.restore(seen.key, state)
        former = self.known.get(seen.key)
        volume_set = KnownVolumeSet(seen, read_specification(body), claimed, keep_last=read_keep_last(body))
        if former is not None:
            volume_set = msgspec.structs.replace(volume_set, stored=former.stored, used=former.used, read=former.read)
        self.known[seen.key] = volume_set

    async def _drop(self, key: Key, spec: Specification) -> None:
        """Delete all volumes; no replica gets one meanwhile."""
        volume_set = self.known.pop(key, None)
        try:
            await asyncio.to_thread(self.store.drop, key, spec.snapshots.create_final_snapshot)
        except EngineError:
            if volume_set is not None:
                self.known[key] = volume_set
            raise

    async def _replace(self, key: Key, spec: Specification) -> None:
        """Delete all volumes, whose replicas end for that and start again."""
        volume_set = self.known.get(key)
        stored = volume_set.stored if volume_set is not None else ()
        volumes = {*self.attachments.list_attached(key), *(VolumeId(key, volume.index) for volume in stored)}
        with self.attachments.reserve(volumes, "is being replaced"):
            for volume in volumes:
                await self.until_detached(volume)
            await asyncio.to_thread(self.store.drop, key, spec.snapshots.create_final_snapshot)

    async def until_detached(self, volume: VolumeId) -> None:
        """Stop the replica that holds a volume, and wait for its end. Raises EngineError VolumeInUse."""
        holder = self.attachments.holder(volume)
        if holder and not await self.attachments.detach_orphan(volume) and not self.signals.stop(holder):
            raise EngineError(
                f"{volume} is attached to {holder}, which is not controlled here: stop it first",
                reason=Reason.VOLUME_IN_USE,
            )
        await self.attachments.until_detached(volume)

    def _waiting(self, step: Step, attached: dict[VolumeId, str]) -> Outcome:
        volume, holder = min(attached.items())
        volume_set = self.known.get(step.key)
        seen = (
            msgspec.structs.replace(volume_set.observation, health=Health.DELETING) if volume_set is not None else None
        )
        message = f"{volume} is attached to {holder}, which has to end first"
        return Outcome(step.id, Result.WAITING, Reason.TERMINATING, message, seen=seen)

    async def _refresh_later(self, key: Key) -> None:
        """Read what exists of a volume set; what cannot be read stays as it was known."""
        with suppress(EngineError):
            await self.refresh(key)


def as_recorded(row: Record) -> Observation:
    """The recorded state of a resource, as an observation."""
    return Observation(row.key, row.location, row.health, row.state, row.digest, row.version, row.alias)
