"""Controls the volumes of a location: its volume sets, commands on them, and what happens to them by itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.host.snapshot_export.exporter import SnapshotExporter
from reconciler.engines.host.volumes.space import reserve_of
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.commands import VolumeCommands
from reconciler.engines.host.volumesets.hooks import Execute, SnapshotHookRunner
from reconciler.engines.host.volumesets.releases import Releases
from reconciler.engines.host.volumesets.verifier import CheckRunner, SnapshotVerifier
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.host.volumesets.watcher import VolumeWatcher
from reconciler.engines.protocol import EngineEvent, Observation
from reconciler.engines.volume_claims import VolumeClaims


class VolumeCallbacks(msgspec.Struct, frozen=True):
    """``changed`` is called after a change, ``released`` when a replica that was refused a volume may get it.

    ``stop`` is called with the holder of a volume, which has to end and starts again, and ``append_event`` with events.
    ``execute`` runs a program in a container, and ``checks`` runs checks of snapshots.
    """

    changed: Callable[[], None]
    released: Callable[[], None]
    stop: Callable[[str], bool]
    append_event: Callable[[EngineEvent], None]
    execute: Execute
    checks: CheckRunner


class VolumeController:
    """``sets`` are the volume sets of the location, whose files are below ``root``; ``commands`` change volumes."""

    def __init__(self, site: EngineContext, root: Path, claims: VolumeClaims, callbacks: VolumeCallbacks) -> None:
        settings, clock, append_event = site.settings, site.clock, callbacks.append_event
        host = settings.host
        store = VolumeStore(root, host.volumes, clock, reserve_of(host.disk_reserve), host.freeze_limit)
        self.sets = VolumeSets(
            claims,
            Releases(root, store, clock),
            callbacks.changed,
            callbacks.released,
            callbacks.stop,
            append_event,
        )
        hooks = SnapshotHookRunner(root, self.sets, callbacks.execute)
        self._verifier = SnapshotVerifier(root, self.sets, clock, callbacks.checks, append_event)
        self.commands = VolumeCommands(root, self.sets, clock, site.records.is_command_open, hooks, self._verifier)
        self._exporter = SnapshotExporter(root, settings.snapshots.export.restic, clock, append_event)
        self._watcher = VolumeWatcher(root, self.sets, self.commands, clock, append_event)

    def observations(self) -> Iterator[Observation]:
        """All volume sets."""
        for each in self.sets.observations():
            seen = self._watcher.with_condition(self._exporter.with_condition(each))
            yield self._verifier.with_condition(seen)

    def begin_schedules(self) -> None:
        """Take and delete snapshots by the schedules from now on."""
        self._watcher.begin_schedules()
        self._verifier.begin_schedules()

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What has to run for as long as the engine is open."""
        return self._watcher.run(), self._exporter.run(), self._verifier.run()
