"""The hooks of a workload around a snapshot of its volume: commands in the container that mounts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_durable, write_error
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.host.volumes.layout import VolumeFiles, read_json
from reconciler.engines.host.volumesets.attachments import parse_holder
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.volumes import VolumeId
from reconciler.errors import EngineError
from reconciler.model.snapshot_hooks import read_snapshot_hooks
from reconciler.reasons import Reason

LIMIT = 60.0
"""Seconds for which a hook may run."""
_FILE = "snapshot-hook.json"

Execute = Callable[[ContainerId, Sequence[str], float], Awaitable[ExecResult]]
"""Runs a program in a container for so many seconds at most. Raises EngineError."""


class OpenHook(msgspec.Struct, frozen=True):
    """A hook ``post`` that has to run in a container of the replica ``holder``; it outlives the daemon."""

    holder: str
    container: str
    post: tuple[str, ...]


class SnapshotHookRunner:
    """Runs the hooks of the volumes of ``sets``, which are below ``root``."""

    def __init__(self, root: Path, sets: VolumeSets, execute: Execute) -> None:
        self._root = root
        self._claims = sets.claims
        self._execute = execute
        self._holder = sets.attachments.holder

    @asynccontextmanager
    async def around(self, volume: VolumeId) -> AsyncIterator[None]:
        """Run the first hook, then the second one, whatever happens in between; the watcher repeats one that fails.

        Raises EngineError SnapshotHookFailed if the first one fails.
        """
        try:
            await self._begin(volume)
            yield
        except asyncio.CancelledError:
            raise  # the daemon ends, and the next one runs it
        except BaseException:
            with suppress(EngineError):
                await self.finish(volume)
            raise
        with suppress(EngineError):
            await self.finish(volume)

    async def finish(self, volume: VolumeId) -> None:
        """Run the second hook if it has to run. Raises EngineError SnapshotHookFailed."""
        file = self._file(volume)
        opened = await asyncio.to_thread(read_json, file, OpenHook)
        if opened is None:
            return
        if opened.holder == self._holder(volume):  # otherwise, what it would undo has ended
            await self._run(opened.holder, opened.container, opened.post, "after")
        await asyncio.to_thread(file.unlink, missing_ok=True)

    async def _begin(self, volume: VolumeId) -> None:
        holder = self._holder(volume)
        if not holder:
            return
        record = self._claims.record(parse_holder(holder)[0])
        hooks = read_snapshot_hooks(record.body if record is not None else b"", volume.volumeset.name)
        if hooks.post:
            await self._write(volume, OpenHook(holder, hooks.container, hooks.post))
        if hooks.pre:
            await self._run(holder, hooks.container, hooks.pre, "before")

    async def _run(self, holder: str, container: str, command: Sequence[str], when: str) -> None:
        workload, replica = parse_holder(holder)
        what = f"the hook {when} the snapshot in {container} of {replica}"
        try:
            done = await self._execute(ContainerId(workload, replica, container), command, LIMIT)
        except EngineError as error:
            raise EngineError(f"{what} could not be run: {error}", reason=Reason.SNAPSHOT_HOOK_FAILED) from None
        if done.timed_out:
            raise EngineError(f"{what} did not end within {LIMIT:g} s", reason=Reason.SNAPSHOT_HOOK_FAILED)
        if done.code:
            lines = done.output.strip().splitlines()
            last = f": {lines[-1][:300]}" if lines else ""
            raise EngineError(f"{what} ended with {done.code}{last}", reason=Reason.SNAPSHOT_HOOK_FAILED)

    async def _write(self, volume: VolumeId, opened: OpenHook) -> None:
        try:
            await asyncio.to_thread(write_durable, self._file(volume), msgspec.json.encode(opened))
        except OSError as error:
            raise write_error(f"the hook of {volume} cannot be recorded", error) from None

    def _file(self, volume: VolumeId) -> Path:
        files = VolumeFiles(self._root, volume.volumeset.gvc, volume.volumeset.name, str(volume.index))
        return files.folder / _FILE
