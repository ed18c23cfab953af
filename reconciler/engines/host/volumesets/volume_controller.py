"""Controls the volumes of a location: its volume sets, commands on them, and what happens to them by itself."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from reconciler.engines.context import EngineContext
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.snapshot_export.exporter import SnapshotExporter
from reconciler.engines.host.volumes.space import reserve_of
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.commands import VolumeCommands
from reconciler.engines.host.volumesets.hooks import Execute, SnapshotHookRunner
from reconciler.engines.host.volumesets.releases import Releases
from reconciler.engines.host.volumesets.verifier import CheckRunner, SnapshotVerifier
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.host.volumesets.watcher import VolumeWatcher
from reconciler.engines.protocol import Observation
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record


def make_volume_sets(context: EngineContext, root: Path, claims: VolumeClaims, signals: LocationSignals) -> VolumeSets:
    """The volume sets of the location whose files are below ``root``."""
    host, clock = context.settings.host, context.clock
    store = VolumeStore(root, host.volumes, clock, reserve_of(host.disk_reserve), host.freeze_limit)
    return VolumeSets(claims, Releases(root, store, clock), signals)


class VolumeController(LocationPart):
    """``commands`` change the volumes of ``sets``. ``execute`` runs hooks in containers, ``checks`` run proofs."""

    def __init__(
        self, context: EngineContext, root: Path, sets: VolumeSets, execute: Execute, checks: CheckRunner
    ) -> None:
        clock, hooks = context.clock, SnapshotHookRunner(root, sets, execute)
        self.sets = sets
        self._verifier = SnapshotVerifier(root, sets, clock, checks)
        self.commands = VolumeCommands(root, sets, clock, context.records.is_command_open, hooks, self._verifier)
        self._exporter = SnapshotExporter(root, context.settings.snapshots.export.restic, clock, sets.signals)
        self._watcher = VolumeWatcher(root, sets, self.commands, clock)

    async def open(self, records: Sequence[Record]) -> None:
        """Continue from the records of the volume sets. Raises EngineError."""
        await self.sets.open([record for record in records if record.key.kind is Kind.VOLUMESET])

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Growth, schedules, exports and proofs."""
        return self._watcher.run(), self._exporter.run(), self._verifier.run()

    def begin_schedules(self) -> None:
        """Take and delete snapshots by the schedules from now on."""
        self._watcher.begin_schedules()
        self._verifier.begin_schedules()

    def read_manifest(self, key: Key, body: bytes, revision: str) -> None:
        """Whether a new version of a workload takes snapshots first."""
        self.sets.releases.read(key, body, revision)

    def forget(self, key: Key) -> None:
        """Forget the versions of a deleted workload."""
        self.sets.releases.forget(key)

    def observations(self) -> Iterator[Observation]:
        """All volume sets."""
        for volumeset in self.sets.observations():
            seen = self._watcher.with_condition(self._exporter.with_condition(volumeset))
            yield self._verifier.with_condition(seen)
