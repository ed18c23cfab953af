"""Exports the snapshots of a location: each once, from the frozen copy, never from the volume in use."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.disk.atomic import write_durable, write_error
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.snapshot_export.restic import Restic
from reconciler.engines.host.volumes.layout import VOLUMES, VolumeFiles, VolumeRecord, VolumeState, read_if_readable
from reconciler.engines.host.volumes.protocol import BackendName
from reconciler.engines.host.volumes.snapshots import read_snapshot, snapshot_data
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.status import DeploymentCondition, with_condition
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.reasons import ConditionType, Reason
from reconciler.settings import ResticSettings

CHECK_SECONDS = 15.0
"""Seconds between two searches for new snapshots."""
FIRST_RETRY_SECONDS = 60.0
LAST_RETRY_SECONDS = 900.0
VOLUME = "volume.json"
"""The copy of the volume's record, beside its data."""
_EXPORTED = "exported.json"


class LocalSnapshot(msgspec.Struct, frozen=True):
    """The snapshot ``name`` of the volume ``index``, in its ``folder``."""

    key: Key
    index: int
    name: str
    folder: Path

    def __str__(self) -> str:
        return f"the snapshot {self.name} of volume {self.index} of {self.key}"


class _Exported(msgspec.Struct, frozen=True):
    """The file that marks an exported snapshot; the repository is a digest, since its name may have a password."""

    repository: str
    copy: str


class SnapshotExporter:
    """Exports what is not exported yet; ``settings`` is None where nothing is exported."""

    def __init__(self, root: Path, settings: ResticSettings | None, clock: Clock, signals: LocationSignals) -> None:
        self._root = root
        self._settings = settings
        self._clock = clock
        self._signals = signals
        self._failures: dict[Key, str] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        wait = FIRST_RETRY_SECONDS
        while self._settings is not None:
            failed = False
            with contain_bugs("export of snapshots"):
                failed = not await self._export_all(self._settings)
            await self._clock.sleep(wait if failed else CHECK_SECONDS)
            wait = min(2 * wait, LAST_RETRY_SECONDS) if failed else FIRST_RETRY_SECONDS

    def with_condition(self, seen: Observation) -> Observation:
        """``seen``, a volume set, with a condition while its snapshots cannot be exported."""
        message = self._failures.get(seen.key)
        if message is None:
            return seen
        failing = DeploymentCondition(ConditionType.SNAPSHOT_EXPORT_FAILING, "True", Reason.EXPORT_FAILED, message)
        return msgspec.structs.replace(seen, state=with_condition(seen.state, failing))

    async def _export_all(self, settings: ResticSettings) -> bool:
        """Export what is not exported; returns whether all of it is. Each volume set stops at its first failure."""
        restic, repository = Restic(settings), _compute_digest(settings.repository)
        failures: dict[Key, str] = {}
        for snapshot in await asyncio.to_thread(_list_pending_snapshots, self._root, repository):
            if snapshot.key in failures:
                continue
            try:
                await self._export(restic, snapshot, repository)
            except (EngineError, OSError) as error:
                if snapshot.folder.exists():
                    engine_error = error if isinstance(error, EngineError) else write_error(f"{snapshot}", error)
                    failures[snapshot.key] = (
                        f"{snapshot.name} of volume {snapshot.index} is not exported: {engine_error}"
                    )
        for key, message in failures.items():
            if self._failures.get(key) != message:
                self._signals.report(key, Reason.EXPORT_FAILED, message)
        self._failures = failures
        return not failures

    async def _export(self, restic: Restic, snapshot: LocalSnapshot, repository: str) -> None:
        record = volume_files(self._root, snapshot.key, snapshot.index).read_record()
        if record is None:
            stored = read_snapshot(snapshot.folder)
            record = VolumeRecord(BackendName.DIRECTORY, stored.capacity if stored else 0.0, VolumeState.READY)
        write_durable(snapshot.folder / VOLUME, msgspec.json.encode(record))
        tags = ("reconciler", snapshot_tag(snapshot.key, snapshot.index, snapshot.name))
        # An image has holes, which restic would read.
        back_up = restic.back_up_archive if snapshot_data(snapshot.folder).is_file() else restic.back_up
        copy = await back_up(snapshot.folder, self._root.name, tags)
        write_durable(snapshot.folder / _EXPORTED, msgspec.json.encode(_Exported(repository, copy)))


def volume_files(root: Path, key: Key, index: int) -> VolumeFiles:
    """The files of a volume."""
    return VolumeFiles(root, key.gvc, key.name, str(index))


def snapshot_tag(key: Key, index: int, name: str) -> str:
    """The tag of the copy of a snapshot: a digest, since restic divides tags at commas."""
    return f"snapshot-{_compute_digest(f'{key} {index} {name}')}"


def _list_pending_snapshots(root: Path, repository: str) -> list[LocalSnapshot]:
    """The snapshots that are not exported to ``repository``, by volume."""
    snapshots = []
    for folder in sorted(list_paths(root / VOLUMES, "*/*/*.d/snapshots/*")):
        gvc, volumeset, volume, _, name = folder.relative_to(root / VOLUMES).parts
        key, index = Key(Kind.VOLUMESET, gvc, volumeset), volume.removesuffix(".d")
        exported = read_if_readable(folder / _EXPORTED, _Exported)
        if index.isdecimal() and _is_readable(folder) and (exported is None or exported.repository != repository):
            snapshots.append(LocalSnapshot(key, int(index), name, folder))
    return snapshots


def _is_readable(folder: Path) -> bool:
    """Whether ``folder`` has a snapshot; of one that cannot be read, the volume set has a condition."""
    with suppress(EngineError):
        return read_snapshot(folder) is not None
    return False


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
