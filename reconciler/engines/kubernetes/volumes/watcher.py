"""What happens to the volumes of a cluster by itself: snapshots by schedule, their expiry, growth as they fill."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.engines.kubernetes.client.objects import CLAIM, VOLUME_SNAPSHOT, KubeObject, ObjectId
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.limitations import list_volume_limitations
from reconciler.engines.kubernetes.status.fields import parse_quantity, read_field, read_text
from reconciler.engines.kubernetes.status.snapshots import (
    LiveSnapshot,
    SnapshotPhase,
    list_ready,
    list_scheduled,
    list_superseded,
    read_index,
)
from reconciler.engines.kubernetes.volumes.commands import VolumeCommands, read_requested_size
from reconciler.engines.kubernetes.volumes.restore_undos import RestoreUndos
from reconciler.engines.kubernetes.volumes.snapshots import SCHEDULE, SnapshotRequest
from reconciler.engines.kubernetes.volumes.unbound_restores import UnboundRestores
from reconciler.engines.kubernetes.volumes.usage import VolumeUsage
from reconciler.engines.protocol import Observation
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volumes import VolumeId, read_volumes
from reconciler.engines.workload.volume_failures import Act, VolumeFailures, VolumeSignals
from reconciler.engines.workload.volume_fill import FilledVolume, VolumeFill
from reconciler.engines.workload.volume_upkeep import (
    SCHEDULED,
    ScheduleState,
    compute_expiry,
    due_snapshot,
    grown_capacity,
    scheduled_name,
    select_expired_snapshots,
)
from reconciler.errors import EngineError, ReconcilerError
from reconciler.model.key import Key
from reconciler.model.kinds.volumeset import Specification, read_keep_last, read_specification
from reconciler.model.quantity import GIB
from reconciler.reasons import Reason

CHECK = 15.0
"""Seconds between two checks of the volume sets."""
GROWTH_PAUSE = 60.0
"""Seconds after a growth in which the volume does not grow by itself again."""
BEGIN_SECONDS = 300.0
"""Seconds after which a snapshot counts as failing that no controller has begun."""

Lock = Callable[[Key], AbstractAsyncContextManager[None]]
"""Lets no step and no command change a volume set meanwhile, nor its workload."""


class _Volume(msgspec.Struct, frozen=True):
    """A volume that can be used: its claim, its snapshots, and what its volume set wants."""

    id: VolumeId
    target: ObjectId
    claim: KubeObject
    spec: Specification
    keep_last: int | None
    snapshots: Sequence[LiveSnapshot]


class VolumeWatcher:
    """Looks at the volume sets of a location.

    How far a schedule is stands on the claim itself: that outlives the daemon and its records, and ends with the claim.
    """

    def __init__(
        self, parts: ClusterParts, commands: VolumeCommands, undos: RestoreUndos, signals: VolumeSignals, lock: Lock
    ) -> None:
        self._api, self._mirror, self._desired = parts.api, parts.mirror, parts.desired
        self._clock = parts.context.clock
        self._claims = VolumeClaims(parts.context.records, parts.context.settings.org)
        self._commands = commands
        self._undos = undos
        self._restores = UnboundRestores(parts, commands.snapshots, undos)
        self._fill = VolumeFill()
        self._usage = VolumeUsage(parts.api, parts.mirror, parts.context.clock)
        self._signals = signals
        self._lock = lock
        self._failures = VolumeFailures(self._clock, signals)
        self._grown: dict[VolumeId, float] = {}
        self._schedules_begun = False

    def begin_schedules(self) -> None:
        """Take and delete snapshots by the schedules, from the next check on: what is recorded of them may be old."""
        self._schedules_begun = True

    async def run(self, list_keys: Callable[[], Iterable[Key]]) -> None:
        """Check the volume sets that ``list_keys`` names, again and again, until cancelled."""
        while True:
            await self._clock.sleep(CHECK)
            with suppress(ReconcilerError), contain_bugs("volumes"):
                await self.check(list(list_keys()))

    async def check(self, keys: Sequence[Key]) -> None:
        """Do what is due for the volume sets ``keys``; what fails holds back nothing else."""
        self._failures.retain(frozenset(keys))
        self._fill.retain(frozenset(keys))
        if not keys or self._mirror.explain_unknown((CLAIM,)) is not None:
            return
        await self._usage.refresh()
        for key in keys:
            with contain_bugs(f"volumes of {key}"):
                async with self._lock(key):
                    await self._check_set(key)

    def used_bytes(self, claim: KubeObject) -> int:
        """The bytes in use of a claim, 0 if they are not known."""
        metadata = claim["metadata"]
        return self._usage.of_claim(metadata["namespace"], metadata["name"]) or 0

    def limitations(self, spec: Specification) -> tuple[str, ...]:
        """What the cluster does not do for a volume set."""
        return list_volume_limitations(spec, self._desired.features, measured=not self._usage.refusal)

    def is_away(self, workload: Key) -> bool:
        """Whether a command has taken a workload away for a moment."""
        return workload in self._commands.replacing

    def with_conditions(self, seen: Observation, recorded: bytes) -> Observation:
        """``seen``, a volume set, with a condition for what fails, and for volumes that are nearly full.

        ``recorded`` is its recorded state.
        """
        self._fill.restore(seen.key, recorded)
        state = read_volumes(seen.state)
        filled = (
            FilledVolume(volume.index, volume.current_size, volume.current_bytes_used)
            for volume in (state.volumes if state is not None else ())
        )
        return self._fill.with_condition(self._failures.with_conditions(seen), filled)

    async def _check_set(self, key: Key) -> None:
        # It may have been deleted while another one was checked.
        record = self._claims.record(key)
        if record is None:
            return
        spec, keep_last = read_specification(record.body), read_keep_last(record.body)
        for undo in self._undos.list(key):
            await self._try(VolumeId(key, undo.index), Act.RESTORE, partial(self._undos.finish, key, undo))
        snapshots = self._commands.snapshots.list(key)
        for item in self._commands.snapshots.claims_of(key):
            claim = item.decode()
            index = read_index(claim)
            if index is None or item.ending:
                continue
            volume = VolumeId(key, index)
            if read_text(claim, "status", "phase") == "Bound":
                own = [live for live in snapshots if live.index == index]
                await self._check_volume(_Volume(volume, item.id, claim, spec, keep_last, own))
            else:
                await self._try(volume, Act.RESTORE, partial(self._restores.check, key, claim))

    async def _check_volume(self, volume: _Volume) -> None:
        await self._try(volume.id, Act.RESTORE, lambda: self._commands.replaced.release(volume.claim))
        await self._try(volume.id, Act.STATE, lambda: self._restores.forget(volume.claim))
        if self._schedules_begun and self._desired.features.snapshots:
            await self._try(volume.id, Act.EXPIRY, lambda: self._delete_expired(volume))
            await self._check_schedule(volume)
        self._check_measurement(volume)
        await self._try(volume.id, Act.GROWTH, lambda: self._grow(volume))

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

    async def _check_schedule(self, volume: _Volume) -> None:
        """Take the snapshot that is due. One that nothing has begun yet will have newer data than were due."""
        if self._mirror.explain_unknown((VOLUME_SNAPSHOT,)) is not None:
            return
        former = _read_state(volume.claim)
        state, due = due_snapshot(former, volume.spec.snapshots, self._clock.now())
        waiting = [live for live in list_scheduled(volume.snapshots) if live.phase is SnapshotPhase.NEW]
        if waiting and state.schedule:
            self._check_begin(volume.id, waiting[-1])
            return
        if due is None:
            self._failures.clear(volume.id, Act.SNAPSHOT)
            if state != former:
                await self._try(volume.id, Act.STATE, lambda: self._write_state(volume, state))
            return
        name = scheduled_name(due)
        if await self._try(volume.id, Act.SNAPSHOT, lambda: self._take(volume, name), name):
            await self._try(volume.id, Act.STATE, lambda: self._write_state(volume, state))

    def _check_begin(self, volume: VolumeId, waiting: LiveSnapshot) -> None:
        if self._clock.now() - waiting.since < BEGIN_SECONDS:
            return
        name = waiting.snapshot.name
        if self._failures.is_due(volume, Act.SNAPSHOT, name):
            message = (
                f"nothing has begun the VolumeSnapshot {waiting.object_name}: see whether a snapshot controller runs, "
                "and whether a VolumeSnapshotClass has the driver of the volume"
            )
            self._failures.add(volume, Act.SNAPSHOT, EngineError(message, reason=Reason.SNAPSHOT_FAILED), name)

    async def _take(self, volume: _Volume, name: str) -> None:
        if any(live.snapshot.name == name and not live.final for live in volume.snapshots):
            return  # before a crash, or by another claim of this volume
        snapshots = volume.spec.snapshots
        expires = compute_expiry(snapshots, self._clock.expiry().latest)
        wanted = SnapshotRequest(name, expires, {SCHEDULED: snapshots.schedule or ""})
        await self._commands.snapshots.create(volume.claim, wanted)

    async def _write_state(self, volume: _Volume, state: ScheduleState) -> None:
        """Note on the claim how far the schedule is."""
        text = f"{state.checked} {state.schedule}" if state.schedule else None
        change = {"metadata": {"annotations": {SCHEDULE: text}}}
        answer = await self._api.patch(volume.target, change)
        self._mirror.put(CLAIM, msgspec.json.encode(answer))

    async def _delete_expired(self, volume: _Volume) -> None:
        """Delete the snapshots that are over, but never the newest one of the schedule that can be restored."""
        ready = {live.snapshot.name: live for live in list_ready(volume.snapshots) if live.ours}
        over = select_expired_snapshots(
            [live.snapshot for live in ready.values()], self._clock.expiry(), volume.keep_last
        )
        for name in over:
            await self._commands.snapshots.delete(volume.target.namespace, [ready[name]])
            message = f"the snapshot {name} of volume {volume.id.index} is over, and was deleted"
            self._signals.report(volume.id.volumeset, Reason.SNAPSHOT_EXPIRED, message)
        await self._commands.snapshots.delete(volume.target.namespace, list_superseded(volume.snapshots))

    def _check_measurement(self, volume: _Volume) -> None:
        """Report a kubelet that does not answer, if the volume is to grow by what it says."""
        error = self._usage.explain_silence(volume.target.namespace, volume.target.name)
        if error is not None and volume.spec.autoscaling.min_free_percentage is not None:
            self._failures.add(volume.id, Act.MEASUREMENT, error)
        else:
            self._failures.clear(volume.id, Act.MEASUREMENT)

    async def _grow(self, volume: _Volume) -> None:
        """Expand a volume because it fills, once its last growth is done."""
        size = read_requested_size(volume.claim)
        used = self._usage.of_claim(volume.target.namespace, volume.target.name)
        there = parse_quantity(read_field(volume.claim, "status", "capacity", "storage")) / GIB
        if used is None or there < size:
            return
        capacity = grown_capacity(volume.spec.autoscaling, there, used)
        now = self._clock.monotonic()
        if capacity is None or now - self._grown.get(volume.id, -math.inf) < GROWTH_PAUSE:
            return
        self._grown[volume.id] = now
        await self._commands.resize(volume.target, capacity)
        message = f"{volume.id.index} at {used / GIB:.1f} of {there:g} GB grows to {capacity:g} GB"
        self._signals.report(volume.id.volumeset, Reason.VOLUME_EXPANDED, f"volume {message}")


def _read_state(claim: KubeObject) -> ScheduleState:
    """How far the schedule of a claim is; what cannot be read begins anew."""
    minute, _, schedule = read_text(claim, "metadata", "annotations", SCHEDULE).partition(" ")
    return ScheduleState(schedule, int(minute)) if minute.isdecimal() and minute.isascii() else ScheduleState()
