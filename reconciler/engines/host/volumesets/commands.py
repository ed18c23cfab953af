"""The commands on volumes: one at a time for each volume, and each once, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.disk.atomic import write_error
from reconciler.engines.host.runtimes.connections import list_started
from reconciler.engines.host.snapshot_export.cloning import clone_snapshot
from reconciler.engines.host.volumes.layout import LastCommand, VolumeFiles
from reconciler.engines.host.volumes.protocol import StoredSnapshot
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.host.volumesets.hooks import SnapshotHookRunner
from reconciler.engines.host.volumesets.other_users import find_other_users
from reconciler.engines.host.volumesets.verifier import SnapshotVerifier
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.volume_commands import (
    CloneVolumeSnapshot,
    CreateVolumeSnapshot,
    DeleteVolume,
    DeleteVolumeSnapshot,
    ExpandVolume,
    RestoreVolume,
    VerifyVolumeSnapshot,
    VolumeCommand,
    apply_command,
)
from reconciler.engines.volumes import VolumeId, make_rejection, read_volumes
from reconciler.engines.workload.volume_upkeep import compact_time
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

_REPLACING = {DeleteVolume: "deleteVolume", RestoreVolume: "restoreVolume"}
"""Commands that replace the data of a volume."""

_MOST_USERS = 3
"""The most processes that a message names."""
PARALLEL = 2
"""The number of volumes whose data are changed at once."""
P = ParamSpec("P")
T = TypeVar("T")


class VolumeCommands:
    """Performs commands on the volumes below ``root``, the directory of a location.

    ``is_open`` says whether the daemon still has to perform the command with an id. ``hooks`` run around snapshots, and
    ``verifier`` proves them.
    """

    def __init__(
        self,
        root: Path,
        sets: VolumeSets,
        clock: Clock,
        is_open: Callable[[str], bool],
        hooks: SnapshotHookRunner,
        verifier: SnapshotVerifier,
    ) -> None:
        self._root = root
        self._sets = sets
        self._store = sets.store
        self._clock = clock
        self._is_open = is_open
        self.hooks = hooks
        self._verifier = verifier
        self._slots = asyncio.Semaphore(PARALLEL)

    async def perform(self, key: Key, ask: VolumeCommand, command_id: str) -> dict[str, Any]:
        """Perform a command; returns the volume. Raises EngineError.

        A command that began before a crash is finished; one that was done is not performed again.
        """
        if key not in self._sets.known:
            raise EngineError(f"there is no {key} at {ask.location}", reason=Reason.NOT_FOUND, retry=False)
        volume = VolumeId(key, ask.volume_index)
        if isinstance(ask, VerifyVolumeSnapshot):
            await self._verifier.verify(volume, ask.snapshot_name)
        else:
            async with self._sets.locks.exclusive(volume, *_list_source_volumes(ask)):
                await self._perform_once(volume, ask, command_id)
        await self._sets.refresh(key)
        state = read_volumes(self._sets.known[key].observation.state)
        volume_state = (
            next(candidate for candidate in state.volumes if candidate.index == volume.index)
            if state is not None
            else None
        )
        plain: dict[str, Any] = msgspec.to_builtins(volume_state)
        return plain

    async def _perform_once(self, volume: VolumeId, ask: VolumeCommand, command_id: str) -> None:
        await self._sets.refresh(volume.volumeset)
        last = await self._last(volume)
        if last is None or not command_id or last.id != command_id:
            self._check(volume.volumeset, ask)
            last = LastCommand(command_id, format_iso_time(self._clock.now()))
        if not last.done:
            await self._finish(volume, ask, last)

    async def expand(self, volume: VolumeId, capacity: float) -> None:
        """Expand a volume, with its replica stopped only if that is needed. Raises EngineError."""
        if not await self._blocking(self._store.grow, volume, capacity):
            async with self.detach(volume, "is being expanded"):
                await self._blocking(self._store.grow, volume, capacity)

    async def take_snapshot(self, volume: VolumeId, name: str, expires: str, tags: Mapping[str, str]) -> None:
        """Take a snapshot. The replica stops for it if the volume cannot be frozen for as long as that takes.

        Raises EngineError.
        """
        store, copy = self._store, partial(self._store.copy_snapshot, volume, name, expires, dict(tags))
        try:
            try:
                await self._blocking(store.prepare_snapshot, volume, name)
                stops = not self._freezes(volume) and bool(self._sets.attachments.holder(volume))
                copied = await (self._copy_detached(volume, name, copy) if stops else self._copy_used(volume, copy))
            except EngineError as error:
                if error.reason != Reason.FREEZE_TIMEOUT:
                    raise
                copied = await self._copy_detached(volume, name, copy)
            await self._blocking(store.complete_snapshot, volume, copied)
        finally:
            await asyncio.to_thread(store.discard_snapshot, volume, name)

    async def _copy_used(self, volume: VolumeId, copy: Callable[[], StoredSnapshot]) -> StoredSnapshot:
        """Copy the data for a snapshot while the replica runs, between its hooks. Raises EngineError."""
        async with self.hooks.around(volume):
            return await self._blocking(copy)

    async def _copy_detached(self, volume: VolumeId, name: str, copy: Callable[[], StoredSnapshot]) -> StoredSnapshot:
        """Copy the data for a snapshot while the replica is stopped; an event says for how long. Raises EngineError."""
        began, holder = self._clock.monotonic(), self._sets.attachments.holder(volume)
        async with self.detach(volume, "gets a snapshot"):
            copied = await self._blocking(copy)
        if holder:
            seconds = self._clock.monotonic() - began
            message = (
                f"volume {volume.index} was without its replica for {seconds:.1f} s for the snapshot {name}: it cannot "
                "be copied while programs write"
            )
            self._sets.signals.report(volume.volumeset, Reason.SNAPSHOT_STOPPED_REPLICA, message)
        return copied

    @asynccontextmanager
    async def detach(self, volume: VolumeId, purpose: str) -> AsyncIterator[None]:
        """Stop the replica that holds a volume; it starts again afterwards. Raises EngineError."""
        await asyncio.to_thread(self._check_users, volume)
        with self._sets.attachments.reserve([volume], purpose):
            await self._sets.until_detached(volume)
            yield

    def _check_users(self, volume: VolumeId) -> None:
        """Raise EngineError VolumeInUse if others than the replica use a mounted volume: it could not be unmounted."""
        holder, path = self._sets.attachments.holder(volume), self._files(volume).path
        if not holder or not path.is_mount():
            return
        workload, _ = parse_holder(holder)
        if others := find_other_users(path, list_started(self._root, workload)):
            raise make_rejection(
                f"{volume} is used by {', '.join(others[:_MOST_USERS])}, apart from its replica: end that first, since "
                "the volume has to be detached; the replica runs on",
                Reason.VOLUME_IN_USE,
            )

    def _check(self, key: Key, ask: VolumeCommand) -> None:
        """Raise EngineError for a command that is impossible as things are."""
        volume_set = self._sets.known[key]
        state = read_volumes(volume_set.observation.state)
        if isinstance(ask, CloneVolumeSnapshot):
            self._check_clone(key, ask)
            return  # the clone may be the first that there is of the volume
        if state is not None:
            apply_command(state, ask, float(volume_set.spec.initial_capacity), "")
        if all(volume.index != ask.volume_index for volume in volume_set.stored):
            raise make_rejection(f"volume {ask.volume_index} of {key} is not created yet", Reason.VOLUME_NOT_FOUND)

    def _check_clone(self, key: Key, ask: CloneVolumeSnapshot) -> None:
        if ask.source_key == key:
            raise make_rejection(
                f"name another volume set as source: {key} restores its own snapshots with restoreVolume"
            )
        if ask.source_key not in self._sets.known:
            raise EngineError(f"there is no {ask.source_key} at {ask.location}", reason=Reason.NOT_FOUND, retry=False)
        stored = next((volume for volume in self._sets.known[key].stored if volume.index == ask.volume_index), None)
        if stored is not None and any(snapshot.name == ask.snapshot_name for snapshot in stored.snapshots):
            message = f"volume {ask.volume_index} has a snapshot {ask.snapshot_name} already"
            raise make_rejection(message, Reason.SNAPSHOT_EXISTS)

    async def _finish(self, volume: VolumeId, ask: VolumeCommand, last: LastCommand) -> None:
        """Perform a command that is not done. Raises EngineError."""
        begun = msgspec.structs.replace(last, replaces=_REPLACING.get(type(ask), ""))
        try:
            await self._record(volume, begun)
        except EngineError as error:
            # It makes room, and can be repeated without a record.
            if error.reason != Reason.DISK_FULL or not isinstance(ask, DeleteVolumeSnapshot):
                raise
        try:
            await self._change(volume, ask, begun)
        except EngineError:
            # If that cannot be recorded, the watcher does it later.
            with suppress(EngineError):
                await self._give_up(volume, begun)
            raise
        await self._record(volume, _mark_command_done(begun))

    async def give_up_lost(self, volume: VolumeId) -> str:
        """Give up the unfinished command on a volume if nothing repeats it; returns its type. Raises EngineError."""
        last = await self._last(volume)
        if last is None or not last.replaces or self._is_open(last.id):
            return ""
        await self._give_up(volume, last)
        return last.replaces

    async def _give_up(self, volume: VolumeId, command: LastCommand) -> None:
        """Let replicas have the volume."""
        if command.replaces:
            await self._record(volume, msgspec.structs.replace(command, replaces=""))
            self._sets.attachments.retry()

    async def _change(self, volume: VolumeId, ask: VolumeCommand, begun: LastCommand) -> None:
        match ask:
            case ExpandVolume(new_storage_capacity=capacity):
                await self.expand(volume, capacity)
            case DeleteVolume():
                async with self.detach(volume, "is being deleted"):
                    await self._blocking(self._store.clear, volume)
                    # The replica that starts next writes new data, which a crash must not delete too.
                    await self._record(volume, _mark_command_done(begun))
            case CreateVolumeSnapshot(snapshot_name=name, snapshot_expiration_date=expires, tags=tags):
                with _done_before(Reason.SNAPSHOT_EXISTS):
                    await self.take_snapshot(volume, name, expires, tags)
            case DeleteVolumeSnapshot(snapshot_name=name):
                with _done_before(Reason.SNAPSHOT_NOT_FOUND):
                    await self._blocking(self._store.delete_snapshot, volume, name)
            case CloneVolumeSnapshot(snapshot_name=name):
                source = VolumeId(ask.source_key, volume.index)
                with _done_before(Reason.SNAPSHOT_EXISTS):
                    await self._blocking(clone_snapshot, self._root, source, name, volume, self._store.reserve)
            case RestoreVolume(snapshot_name=name):
                async with self.detach(volume, "is being restored"):
                    former = f"pre-restore-{compact_time(begun.started)}"
                    await self._blocking(self._store.restore, volume, name, former)
                    await self._record(volume, _mark_command_done(begun))

    async def _blocking(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what may take long in a thread; others need threads too."""
        async with self._slots:
            return await asyncio.to_thread(work, *args, **kwargs)

    def _freezes(self, volume: VolumeId) -> bool:
        volume_set = self._sets.known.get(volume.volumeset)
        stored = volume_set.stored if volume_set is not None else ()
        return any(stored_volume.index == volume.index and stored_volume.freezes for stored_volume in stored)

    async def _last(self, volume: VolumeId) -> LastCommand | None:
        return await asyncio.to_thread(self._files(volume).read_command)

    async def _record(self, volume: VolumeId, last: LastCommand) -> None:
        try:
            await asyncio.to_thread(self._files(volume).write_command, last)
        except OSError as error:
            raise write_error(f"the command on {volume} cannot be recorded", error) from None

    def _files(self, volume: VolumeId) -> VolumeFiles:
        return VolumeFiles(self._root, volume.volumeset.gvc, volume.volumeset.name, str(volume.index))


def _list_source_volumes(ask: VolumeCommand) -> Iterator[VolumeId]:
    """The other volumes that the command reads."""
    if isinstance(ask, CloneVolumeSnapshot):
        yield VolumeId(ask.source_key, ask.volume_index)


def _mark_command_done(command: LastCommand) -> LastCommand:
    return msgspec.structs.replace(command, done=True, replaces="")


@contextmanager
def _done_before(reason: Reason) -> Iterator[None]:
    """Ignore the ``reason`` that the command was done before a crash: it was checked when the command began."""
    try:
        yield
    except EngineError as error:
        if error.reason != reason:
            raise
