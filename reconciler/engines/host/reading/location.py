"""Reads a location of this host from its files. An idle API imports this, so it imports the engine where it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.engines.host.paths import ENGINE, find_directory
from reconciler.engines.reading import ExecTarget, LogSelection, LogStream, ReplicaRow, Sender
from reconciler.errors import EngineError, UsageError
from reconciler.reasons import Reason

if TYPE_CHECKING:
    from reconciler.engines.host.logs.search import Search
    from reconciler.engines.host.reading.snapshot import HostSnapshot
    from reconciler.engines.usage_history import UsagePoint
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.model.key import Key
    from reconciler.settings import Settings
    from reconciler.terminal.session import ExecSession, TerminalSize


class HostReader:
    """Shows all that the protocols of readers have."""

    engine = ENGINE

    def __init__(self, settings: Settings, location: str) -> None:
        self.location = location
        self._settings = settings
        self._root = find_directory(settings.state, location)
        self._before: HostSnapshot | None = None

    def replicas(self) -> list[ReplicaRow]:
        """The replicas now; CPU since the last call."""
        from reconciler.engines.host.reading.snapshot import list_rows, take_snapshot

        before, self._before = self._before, take_snapshot(self._root, self.location)
        return list_rows(self.location, self._before, before)

    def usage_history(self, key: Key) -> list[UsagePoint]:
        """The points of a workload in the last day."""
        from reconciler.clock import SystemClock
        from reconciler.engines.usage_history import FOLDER, UsageHistory

        return UsageHistory(self._root / FOLDER).read(key, SystemClock().now())

    def log_streams(self) -> Iterator[LogStream]:
        """Every stream that exists."""
        from reconciler.engines.host.logs.segments import LOGS, list_streams

        return list_streams({self.location: self._root / LOGS})

    def search_logs(self, selection: LogSelection) -> Search:
        """A search for what ``selection`` takes."""
        from reconciler.engines.host.logs.search import Search
        from reconciler.engines.host.logs.segments import LOGS

        return Search({self.location: self._root / LOGS}, selection)

    async def open_session(self, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None) -> ExecSession:
        """Run ``argv`` in a container, in whichever runtime it runs."""
        from reconciler.clock import SystemClock
        from reconciler.engines.host.runtimes.plugins import runtime_plugin, runtimes_in_use
        from reconciler.engines.host.runtimes.protocol import ContainerId

        message = f"container {target.container} of {target.replica} does not run"
        problem = EngineError(message, reason=Reason.NOT_RUNNING)
        for name in runtimes_in_use(self._root):
            runtime = runtime_plugin(name).make(self._root, self.location, SystemClock(), self._settings)
            try:
                container = ContainerId(target.key, target.replica, target.container)
                return await runtime.open_session(container, argv, terminal)
            except EngineError as error:
                if error.reason != Reason.NOT_RUNNING:
                    raise
                problem = error
        raise problem

    def final_snapshots(self) -> Iterable[VolumeSnapshot]:
        """The final snapshots of deleted volumes."""
        from reconciler.engines.host.volumes.final import FinalSnapshots
        from reconciler.engines.volumes import Snapshot, VolumeSnapshot

        for volume in FinalSnapshots(self._root).list():
            stored = volume.snapshot
            snapshot = Snapshot(volume.name, stored.created, stored.capacity, stored.expires, stored.tags)
            yield VolumeSnapshot(volume.volumeset, self.location, volume.index, snapshot)

    def delete_final_snapshot(self, snapshot: VolumeSnapshot) -> None:
        """Delete one, with the data."""
        from reconciler.clock import SystemClock
        from reconciler.engines.host.volumes.final import FinalSnapshots
        from reconciler.engines.host.volumes.store import VolumeStore

        name = (snapshot.key, snapshot.snapshot.name)
        for volume in FinalSnapshots(self._root).list():
            if (volume.volumeset, volume.name) == name:
                VolumeStore(self._root, "auto", SystemClock()).delete_final_snapshot(volume)

    async def import_snapshot(self, key: Key, index: int, name: str) -> None:
        """Bring a snapshot back from the repository of the setting `snapshots.export`."""
        from reconciler.engines.host.snapshot_export.importer import import_snapshot

        restic = self._settings.snapshots.export.restic
        if restic is None:
            raise UsageError("the settings have no `snapshots.export.restic` to import from")
        await import_snapshot(self._root, restic, key, index, name)

    def clone_snapshot(self, source: Key, name: str, target: Key, index: int) -> None:
        """Copy a snapshot between two volumes of this location."""
        from reconciler.engines.host.snapshot_export.cloning import clone_snapshot
        from reconciler.engines.host.volumes.space import reserve_of
        from reconciler.engines.volumes import VolumeId

        reserve = reserve_of(self._settings.host.disk_reserve)
        clone_snapshot(self._root, VolumeId(source, index), name, VolumeId(target, index), reserve)

    def has_token(self, key: Key, token: str) -> bool:
        """Whether ``token`` is in the file of the workload."""
        from reconciler.engines.host.provisioning.tokens import is_stored

        return is_stored(self._root, key, token)

    def is_sender(self, key: Key, token: str, sender: Sender) -> bool:
        """Whether a process of the workload sends, by the records of its starts and the kernel's tables."""
        from reconciler.engines.host.runtimes.connections import belongs_to, comes_from

        if isinstance(sender, int):
            return belongs_to(sender, self._root, key)
        return comes_from(sender, self._root, key, token)

    def addresses(self) -> Mapping[str, str]:
        """The addresses of the data plane."""
        from reconciler.engines.host.reading.trial import find_addresses

        return find_addresses(self._root)

    def is_serving(self) -> bool:
        """Whether the data plane serves what is ready."""
        from reconciler.engines.host.reading.trial import is_serving

        return is_serving(self._root, self._settings.locations[self.location].ingress)

    async def end(self) -> None:
        """Stop the proxy and all replicas."""
        from reconciler.engines.host.reading.trial import end_location

        await end_location(self._settings, self.location)
