"""Proves snapshots: each is copied, attached, and checked as the workload says; the volume itself is not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.due_times import begins_anew, due_times
from reconciler.engines.host.disk.atomic import write_durable, write_failures
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.runtimes.protocol import ExecResult
from reconciler.engines.host.volumes.layout import VolumeState, read_if_readable
from reconciler.engines.host.volumes.protocol import StoredSnapshot, StoredVolume
from reconciler.engines.host.volumes.scratch import ScratchVolumes
from reconciler.engines.host.volumesets.volume_sets import KnownVolumeSet, VolumeSets
from reconciler.engines.protocol import Observation
from reconciler.engines.volumes import BEFORE_RESTORE, VolumeId
from reconciler.engines.workload.volume_failures import Act, VolumeFailures
from reconciler.engines.workload.volume_upkeep import ScheduleState
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.snapshot_check import SnapshotCheck, read_snapshot_check
from reconciler.reasons import Reason

CHECK = 60.0
"""Seconds between two looks whether a snapshot is to be proven."""
REMOVALS = 20
"""How often a copy is tried to be removed at most."""
REMOVAL_PAUSE = 1.0
"""Seconds between two of these."""
LIMIT = 3600.0
"""Seconds for which the command of a check may run."""


class CheckRun(msgspec.Struct, frozen=True):
    """A command in a container like ``container`` of ``workload``, which has ``path`` in place of its volume."""

    workload: Key
    container: str
    command: tuple[str, ...]
    volume: VolumeId
    path: Path


class CheckRunner(Protocol):
    """Runs checks in containers. Both methods raise EngineError."""

    def owner(self, key: Key) -> Owner:
        """The user of the files of a workload."""

    async def run(self, check: CheckRun, timeout: float) -> ExecResult:
        """Run ``check`` to its end, for ``timeout`` seconds at most."""


class SnapshotVerifier:
    """Proves snapshots of ``sets``; ``root`` is the directory of the location, where the states of schedules are."""

    def __init__(self, root: Path, sets: VolumeSets, clock: Clock, runner: CheckRunner) -> None:
        self._file = root / "snapshot-verifications.json"
        self._sets = sets
        self._clock = clock
        self._runner = runner
        self._scratch = ScratchVolumes(root, sets.store.reserve)
        self._failures = VolumeFailures(clock, sets.signals)
        self._schedules: dict[str, ScheduleState] = {}
        self._turn = asyncio.Lock()
        self._begun = False

    async def run(self) -> None:
        """Prove what is due until cancelled, one snapshot at a time."""
        with suppress(EngineError):  # a copy that is in use is removed before the next proof
            await self._remove_copies()
        schedules = await asyncio.to_thread(read_if_readable, self._file, dict[str, ScheduleState])
        self._schedules = schedules or {}
        while True:
            self._failures.retain(self._sets.known)
            for key in [*self._sets.known] if self._begun else ():
                with contain_bugs(f"proofs of {key}"):
                    await self._check_set(key)
            await self._clock.sleep(CHECK)

    def begin_schedules(self) -> None:
        """Prove snapshots by the schedules from now on: what is recorded of them may be old."""
        self._begun = True

    def with_condition(self, seen: Observation) -> Observation:
        """``seen``, a volume set, with a condition if a snapshot could not be proven."""
        return self._failures.with_conditions(seen)

    async def verify(self, volume: VolumeId, name: str) -> None:
        """Prove a snapshot: its checksum, that its file system can be attached, and the check of the workload.

        Raises EngineError SnapshotNotFound, SnapshotDamaged, HostDiskLow and SnapshotVerificationFailed.
        """
        workload, check = self._find_check(volume.volumeset)
        async with self._turn:
            try:
                await self._remove_copies()
                async with self._sets.locks.exclusive(volume):
                    await asyncio.to_thread(self._scratch.fill, volume, name)
                await self._check_copy(volume, name, workload, check)
            finally:
                with suppress(EngineError):  # it is removed before the next proof
                    await self._remove_copies()
        async with self._sets.locks.exclusive(volume):
            await asyncio.to_thread(self._sets.store.set_proven, volume, name)
        self._failures.clear(volume, Act.PROOF)
        how = "its check passed" if check.command else "its checksum is right, and its file system can be attached"
        message = f"the snapshot {name} of volume {volume.index} was restored to a copy: {how}"
        self._sets.signals.report(volume.volumeset, Reason.SNAPSHOT_PROVEN, message)
        await self._sets.refresh(volume.volumeset)

    async def _check_copy(self, volume: VolumeId, name: str, workload: Key | None, check: SnapshotCheck) -> None:
        owner = self._runner.owner(workload) if workload is not None else None
        path = await asyncio.to_thread(self._scratch.attach, volume, owner)
        if workload is None or not check.command:
            return
        run = CheckRun(workload, check.container, check.command, volume, path)
        what = f"the check of the snapshot {name} of volume {volume.index}"
        try:
            done = await self._runner.run(run, LIMIT)
        except EngineError as error:
            raise _make_verification_error(f"{what} could not be run: {error}") from None
        if done.timed_out:
            raise _make_verification_error(f"{what} did not end within {LIMIT:g} s")
        if done.code:
            lines = done.output.strip().splitlines()
            raise _make_verification_error(f"{what} ended with {done.code}{f': {lines[-1][:300]}' if lines else ''}")

    def _find_check(self, key: Key) -> tuple[Key | None, SnapshotCheck]:
        """The workload that uses a volume set, None without one, and its check."""
        volume_set = self._sets.known.get(key)
        name = volume_set.claimed.used_by_workload.rpartition("/")[2] if volume_set is not None else ""
        workload = Key(Kind.WORKLOAD, key.gvc, name)
        record = self._sets.claims.record(workload) if name else None
        if record is None:
            return None, SnapshotCheck()
        return workload, read_snapshot_check(record.body, key.name)

    async def _check_set(self, key: Key) -> None:
        """Prove the newest snapshot of each volume of a volume set if that is due."""
        try:
            await self._prove_due(key)
        except EngineError as error:
            self._failures.add(VolumeId(key, 0), Act.PROOF, error)

    async def _prove_due(self, key: Key) -> None:
        volume_set, (_, check) = self._sets.known.get(key), self._find_check(key)
        if volume_set is None or not check.command:
            return
        former, minute = self._schedules.get(str(key), ScheduleState()), int(self._clock.now() // 60)
        if begins_anew(check.schedule, former.schedule, former.checked, minute):
            await self._set_schedule(key, ScheduleState(check.schedule, minute))
            return
        times = due_times(check.schedule, former.checked, minute)
        if times is None:
            return
        proven = [
            await self._prove_newest(VolumeId(key, volume.index), volume) for volume in _list_ready_volumes(volume_set)
        ]
        if all(proven):
            await self._set_schedule(key, ScheduleState(check.schedule, times.newest))

    async def _prove_newest(self, volume: VolumeId, stored: StoredVolume) -> bool:
        """Prove the newest snapshot of a volume, if it has any; False if that is still to be done."""
        newest = newest_copy(stored.snapshots)
        if newest is None:
            return True
        if not self._failures.is_due(volume, Act.PROOF, newest.name):
            return False
        try:
            await self.verify(volume, newest.name)
        except EngineError as error:
            self._failures.add(volume, Act.PROOF, error, newest.name)
            return False
        return True

    async def _set_schedule(self, key: Key, state: ScheduleState) -> None:
        self._schedules = {text: past for text, past in self._schedules.items() if Key.parse(text) in self._sets.known}
        self._schedules[str(key)] = state
        with write_failures(f"{self._file.name} cannot be written"):
            await asyncio.to_thread(write_durable, self._file, msgspec.json.encode(self._schedules))

    async def _remove_copies(self) -> None:
        """Remove all copies. Raises EngineError.

        A container that starts meanwhile has all mounts of the host for a moment, which keeps them in use.
        """
        for _ in range(REMOVALS - 1):
            try:
                await asyncio.to_thread(self._scratch.remove_all)
                return
            except EngineError as error:
                if error.reason != Reason.VOLUME_IN_USE:
                    raise
            await self._clock.sleep(REMOVAL_PAUSE)
        await asyncio.to_thread(self._scratch.remove_all)


def newest_copy(snapshots: Sequence[StoredSnapshot]) -> StoredSnapshot | None:
    """The newest snapshot that was taken as a copy, not as what a restore replaced; None if there is none."""
    copies = [snapshot for snapshot in snapshots if BEFORE_RESTORE not in snapshot.tags]
    return max(copies, key=lambda copy: (copy.created, copy.name), default=None)


def _list_ready_volumes(volume_set: KnownVolumeSet) -> list[StoredVolume]:
    return [volume for volume in volume_set.stored if volume.state is VolumeState.READY and not volume.damage]


def _make_verification_error(message: str) -> EngineError:
    return EngineError(message, reason=Reason.SNAPSHOT_VERIFICATION_FAILED, retry=False)
