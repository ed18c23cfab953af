"""Watches the volumes of a location: growth, scheduled and expired snapshots, what they use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.decisions.volumes import describe_overcommitment
from reconciler.engines.host.disk.atomic import write_durable, write_error
from reconciler.engines.host.volumes.layout import GIB, VolumeState, read_if_readable
from reconciler.engines.host.volumes.protocol import StoredVolume
from reconciler.engines.host.volumes.store import TRIM_PAUSE
from reconciler.engines.host.volumesets.attachments import lock_message, parse_holder
from reconciler.engines.host.volumesets.commands import VolumeCommands
from reconciler.engines.host.volumesets.volume_sets import KnownVolumeSet, VolumeSets
from reconciler.engines.protocol import Observation
from reconciler.engines.volumes import VolumeId
from reconciler.engines.workload.status import DeploymentCondition, with_condition
from reconciler.engines.workload.volume_failures import Act, VolumeFailures
from reconciler.engines.workload.volume_fill import FilledVolume
from reconciler.engines.workload.volume_upkeep import (
    SCHEDULED,
    ScheduleState,
    compute_expiry,
    due_snapshot,
    grown_capacity,
    scheduled_name,
    scheduled_snapshots,
    select_expired_snapshots,
)
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Snapshots, Specification
from reconciler.reasons import ConditionType, Reason
from reconciler.tasks import cancel_and_wait
from reconciler.times import parse_time

_State = TypeVar("_State")

CHECK = 15.0
"""Seconds between two checks of a volume set."""

GROWTH_PAUSE = 60.0
"""Seconds after a growth in which the volume does not grow by itself again."""

TRIM = 7 * 86_400.0
"""Seconds between two times that the unused blocks of an image are given back to the host."""

MEASURE = 300.0
"""Seconds between two measurements of a directory, all of whose files are counted."""


class VolumeWatcher:
    """``root`` is the directory of the location, where the states of the schedules are."""

    def __init__(
        self,
        root: Path,
        sets: VolumeSets,
        commands: VolumeCommands,
        clock: Clock,
    ) -> None:
        self._file = root / "snapshot-schedules.json"
        self._trims_file = root / "volume-trims.json"
        self._sets = sets
        self._commands = commands
        self._clock = clock
        self._signals = sets.signals
        self._schedules_begun = False
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._schedules: dict[str, ScheduleState] = {}
        self._grown: dict[VolumeId, float] = {}
        self._measured: dict[VolumeId, float] = {}
        self._trimmed: dict[str, float] = {}
        self._spared: dict[VolumeId, tuple[str, ...]] = {}
        self._damaged: set[tuple[VolumeId, str]] = set()
        self._overcommitted = ""
        self._failures = VolumeFailures(clock, sets.signals)

    async def run(self) -> None:
        """Work until cancelled. A volume set whose replica takes long to stop delays no other one."""
        # Without a valid file, the schedules and the weeks between trims begin anew.
        schedules = await asyncio.to_thread(read_if_readable, self._file, dict[str, ScheduleState])
        trimmed = await asyncio.to_thread(read_if_readable, self._trims_file, dict[str, float])
        self._schedules, self._trimmed = schedules or {}, trimmed or {}
        try:
            while True:
                self._failures.retain(self._sets.known)
                self._sets.fill.retain(self._sets.known)
                with suppress(EngineError):
                    self._check_promises()
                for key in self._sets.known:
                    self._begin(key)
                await self._clock.sleep(CHECK)
        finally:
            await cancel_and_wait(self._tasks.values(), "checks of volumes")
            self._tasks.clear()

    def begin_schedules(self) -> None:
        """Take and delete snapshots by the schedules, from the next check on: what is recorded of them may be old."""
        self._schedules_begun = True

    def with_condition(self, seen: Observation) -> Observation:
        """``seen``, a volume set, with the conditions of files that cannot be read, of what fails, and of promises that
        the disk cannot hold.
        """
        volume_set = self._sets.known.get(seen.key)
        stored = volume_set.stored if volume_set is not None else ()
        damages = [message for volume in stored for message in _describe_damages(seen.key, volume)]
        if damages:
            condition = DeploymentCondition(ConditionType.VOLUME_DAMAGED, "True", Reason.VOLUME_DAMAGED, damages[0])
            seen = msgspec.structs.replace(seen, state=with_condition(seen.state, condition))
        seen = self._sets.fill.with_condition(self._failures.with_conditions(seen), _list_filled(volume_set))
        if not self._overcommitted or not any(volume.enforced for volume in stored):
            return seen
        kind, reason = ConditionType.DISK_OVERCOMMITTED, Reason.DISK_OVERCOMMITTED
        condition = DeploymentCondition(kind, "True", reason, self._overcommitted)
        return msgspec.structs.replace(seen, state=with_condition(seen.state, condition))

    def _check_promises(self) -> None:
        """Compare the capacities of all volumes with the disk. Raises EngineError."""
        stored = [volume for volume_set in self._sets.known.values() for volume in volume_set.stored]
        text = describe_overcommitment(stored, self._sets.store.disk_size()) if stored else ""
        if text != self._overcommitted:
            self._overcommitted = text
            self._signals.report_change()

    def _begin(self, key: Key) -> None:
        if (task := self._tasks.get(key)) is None or task.done():
            self._tasks[key] = asyncio.create_task(self._check(key), name=f"check {key}")

    async def _check(self, key: Key) -> None:
        with contain_bugs(f"volumes of {key}"):
            try:
                await self._check_set(key)
            except EngineError as error:
                self._failures.add(VolumeId(key, 0), Act.STATE, error)

    async def _check_set(self, key: Key) -> None:
        await self._sets.refresh(key)
        volume_set = self._sets.known.get(key)
        if volume_set is None:
            return
        for stored_volume in volume_set.stored:
            if stored_volume.unfinished is not None:
                await self._give_up_lost(VolumeId(key, stored_volume.index))
        if not volume_set.stored:
            self._failures.clear(VolumeId(key, 0), Act.STATE)
        former = self._schedules.get(str(key), ScheduleState())
        state, due = former, None
        if self._schedules_begun:
            state, due = due_snapshot(former, volume_set.spec.snapshots, self._clock.now())
        ready = [volume for volume in volume_set.stored if volume.state is VolumeState.READY]
        results = [await self._check_volume(VolumeId(key, volume.index), volume, volume_set, due) for volume in ready]
        if state != former and all(results):
            self._schedules[str(key)] = state
            async with self._writing:
                await asyncio.to_thread(_write_states, self._file, self._schedules)
        await self._sets.refresh(key)

    async def _check_volume(
        self, volume: VolumeId, stored: StoredVolume, volume_set: KnownVolumeSet, due: int | None
    ) -> bool:
        """Do what is due for a volume; False if it lacks its snapshot. What fails holds back nothing else."""
        if stored.damage or stored.lost:
            damage = EngineError(stored.damage, reason=Reason.VOLUME_DAMAGED)
            self._failures.add(volume, Act.STATE, damage if stored.damage else _make_lost_error(volume, stored.holder))
            return due is None
        self._failures.clear(volume, Act.STATE)
        self._forget_failed_snapshot(volume, stored, volume_set.spec.snapshots)
        name = scheduled_name(due) if due is not None else ""
        async with self._sets.locks.exclusive(volume):
            if not stored.holder:
                await self._try(volume, Act.LOCK, lambda: self._lock_again(volume))
            await self._try(volume, Act.HOOK, lambda: self._commands.hooks.finish(volume))
            if self._schedules_begun:
                await self._try(volume, Act.EXPIRY, lambda: self._delete_expired(volume, stored, volume_set.keep_last))
            await self._try(volume, Act.MEASUREMENT, lambda: self._measure(volume, stored))
            await self._try(volume, Act.GROWTH, lambda: self._grow(volume, stored, volume_set.spec))
            taken = not name or await self._try(
                volume, Act.SNAPSHOT, lambda: self._take(volume, stored, volume_set.spec.snapshots, name), name
            )
            await self._try(volume, Act.TRIM, lambda: self._trim(volume, stored))
        return taken

    async def _lock_again(self, volume: VolumeId) -> None:
        """Lock a volume whose lock another program has removed: commands would take it for a detached one."""
        if holder := await self._sets.attachments.lock_again(volume):
            self._signals.report(volume.volumeset, Reason.VOLUMES_CHECKED, lock_message(volume, holder))

    async def _try(
        self, volume: VolumeId, act: Act, work: Callable[[], Coroutine[Any, Any, None]], subject: str = ""
    ) -> bool:
        """Do something, unless it failed and its wait is not over; False if it is not done."""
        if not self._failures.is_due(volume, act, subject):
            return False
        try:
            await work()
        except EngineError as error:
            self._failures.add(volume, act, error, subject)
            return False
        self._failures.clear(volume, act)
        return True

    def _forget_failed_snapshot(self, volume: VolumeId, stored: StoredVolume, snapshots: Snapshots) -> None:
        """Forget that a snapshot failed if there is a newer one, which a command may have taken, or no schedule."""
        failure = self._failures.find(volume, Act.SNAPSHOT)
        if failure is None:
            return
        newest = max((parse_time(snapshot.created) for snapshot in stored.snapshots), default=0.0)
        if newest > failure.at or not snapshots.schedule:
            self._failures.clear(volume, Act.SNAPSHOT)

    async def _give_up_lost(self, volume: VolumeId) -> None:
        """Let replicas have a volume whose command was interrupted, and failed or was cancelled since."""
        async with self._sets.locks.exclusive(volume):
            command = await self._commands.give_up_lost(volume)
        if command:
            message = f"{volume} can be used again: the {command} that was interrupted is not repeated"
            self._signals.report(volume.volumeset, Reason.VOLUMES_CHECKED, message)

    async def _delete_expired(self, volume: VolumeId, stored: StoredVolume, keep_last: int | None) -> None:
        """Delete the snapshots that are over, but never the newest one of the schedule that can be restored."""
        snapshots = [snapshot.describe() for snapshot in stored.snapshots]
        over = select_expired_snapshots(snapshots, self._clock.expiry(), keep_last)
        if not over or over == self._spared.get(volume):
            return
        newest = await self._newest_intact(volume, stored)
        for name in over:
            if name != newest:
                await asyncio.to_thread(self._sets.store.delete_snapshot, volume, name)
                self._damaged.discard((volume, name))
                message = f"the snapshot {name} of volume {volume.index} is over, and was deleted"
                self._signals.report(volume.volumeset, Reason.SNAPSHOT_EXPIRED, message)
        # A newer one is damaged: all data are not read again until another snapshot is over.
        self._spared[volume] = (newest,) if newest in over else ()

    async def _newest_intact(self, volume: VolumeId, stored: StoredVolume) -> str:
        """The name of the newest snapshot of the schedule that matches its checksum, "" if none does."""
        for scheduled_snapshot in reversed(scheduled_snapshots(snapshot.describe() for snapshot in stored.snapshots)):
            if await asyncio.to_thread(self._sets.store.is_intact, volume, scheduled_snapshot.name):
                return scheduled_snapshot.name
            if (volume, scheduled_snapshot.name) not in self._damaged:
                self._damaged.add((volume, scheduled_snapshot.name))
                name = scheduled_snapshot.name
                message = f"the snapshot {name} of {volume} is damaged: the newest undamaged one is kept for it"
                self._signals.report(volume.volumeset, Reason.SNAPSHOT_DAMAGED, message)
        return ""

    async def _measure(self, volume: VolumeId, stored: StoredVolume) -> None:
        """Find out what a volume uses; all files of a directory are counted, so that is done less often."""
        if not self._is_due(self._measured, volume, 0.0 if stored.enforced else MEASURE):
            return
        self._sets.set_used(volume, await asyncio.to_thread(self._sets.store.usage, volume))

    async def _grow(self, volume: VolumeId, stored: StoredVolume, spec: Specification) -> None:
        """Expand a volume to the capacity of the manifest, or because it fills."""
        if stored.capacity < spec.initial_capacity:
            await self._commands.expand(volume, float(spec.initial_capacity))
            return
        used = self._sets.used_bytes(volume)
        capacity = grown_capacity(spec.autoscaling, stored.capacity, used)
        if capacity is None or not self._is_due(self._grown, volume, GROWTH_PAUSE):
            return
        await self._commands.expand(volume, capacity)
        message = f"{volume.index} at {used / GIB:.1f} of {stored.capacity:g} GB grew to {capacity:g} GB"
        self._signals.report(volume.volumeset, Reason.VOLUME_EXPANDED, f"volume {message}")

    async def _take(self, volume: VolumeId, stored: StoredVolume, snapshots: Snapshots, name: str) -> None:
        """Take the snapshot ``name`` of the schedule, unless it was taken before a crash."""
        if all(snapshot.name != name for snapshot in stored.snapshots):
            tags = {SCHEDULED: snapshots.schedule or ""}
            await self._commands.take_snapshot(
                volume, name, compute_expiry(snapshots, self._clock.expiry().latest), tags
            )

    async def _trim(self, volume: VolumeId, stored: StoredVolume) -> None:
        """Give the host the blocks of a mounted image that its file system does not use."""
        if not stored.enforced or not self._sets.attachments.holder(volume):
            return
        now = self._clock.now()
        last = self._trimmed.get(str(volume), math.inf)
        if now < last:  # seen for the first time, or the clock was set back
            await self._set_trimmed(volume, now)
        elif now - last >= TRIM or (now - last >= TRIM_PAUSE and self._sets.store.is_low()):
            await asyncio.to_thread(self._sets.store.trim, volume)
            await self._set_trimmed(volume, now)

    async def _set_trimmed(self, volume: VolumeId, now: float) -> None:
        """Remember across restarts when a volume was trimmed."""
        self._trimmed[str(volume)] = now
        stored = {
            str(VolumeId(key, volume.index))
            for key, volume_set in self._sets.known.items()
            for volume in volume_set.stored
        }
        self._trimmed = {text: last for text, last in self._trimmed.items() if text in stored}
        async with self._writing:
            await asyncio.to_thread(_write_states, self._trims_file, self._trimmed)

    def _is_due(self, last: dict[VolumeId, float], volume: VolumeId, pause: float) -> bool:
        """Whether ``pause`` seconds have passed since the last time, if there was any; it is now then."""
        now = self._clock.monotonic()
        due = now - last.get(volume, -math.inf) >= pause
        if due:
            last[volume] = now
        return due


def _describe_damages(key: Key, stored: StoredVolume) -> Iterator[str]:
    """A message for each part of a volume that cannot be used, and what to do; the volume itself first."""
    volume = VolumeId(key, stored.index)
    if stored.damage:
        yield f"{volume}: {stored.damage}"
    elif stored.lost:
        yield str(_make_lost_error(volume, stored.holder))
    yield from (
        f"{volume} has a snapshot that cannot be used: {damaged_snapshot}"
        for damaged_snapshot in stored.damaged_snapshots
    )


def _make_lost_error(volume: VolumeId, holder: str) -> EngineError:
    """The error for a volume whose file system its replica cannot use."""
    workload, _ = parse_holder(holder)
    return EngineError(
        f"{volume} has lost its file system: it is no longer mounted, its image is damaged, or it stopped after an "
        "error, such as a full disk of the host. Make room if that is full, then mount it again: "
        f"reconciler restart {workload}",
        reason=Reason.VOLUME_UNAVAILABLE,
    )


def _write_states(path: Path, states: object) -> None:
    try:
        write_durable(path, msgspec.json.encode(states))
    except OSError as error:
        raise write_error(f"{path.name} cannot be written", error) from None


def _list_filled(volume_set: KnownVolumeSet | None) -> Iterator[FilledVolume]:
    """The volumes that have a limit, with what they use. Directories have none but the disk.

    What an image uses is known while it is mounted: before, it has blocks of deleted files too.
    """
    if volume_set is not None:
        for volume in volume_set.stored:
            if volume.enforced and volume.state is VolumeState.READY and not volume.damage:
                used = volume_set.used.get(volume.index, 0) if volume.holder else 0
                yield FilledVolume(volume.index, volume.capacity, used)
