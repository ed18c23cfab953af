"""The replicas of all locations and their usage, from the engines' readers; needs no daemon."""

from __future__ import annotations

from reconciler.engines.plugin import make_readers
from reconciler.engines.reading import ReplicaRow, SupportsReplicaRows
from reconciler.settings import Settings


class ReplicaReader:
    """Reads the replicas at the locations whose engines have some, of ``gvc`` or (None) of all."""

    def __init__(self, settings: Settings, gvc: str | None = None) -> None:
        self._readers = [reader for reader in make_readers(settings) if isinstance(reader, SupportsReplicaRows)]
        self._gvc = gvc

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations whose engines have replicas, sorted."""
        return tuple(reader.location for reader in self._readers)

    @property
    def has_locations(self) -> bool:
        """Whether any location can have replicas."""
        return bool(self._readers)

    def read(self) -> list[ReplicaRow]:
        """The replicas now, in order of workload, location and name; CPU since the last call, None at the first.

        Blocks while it reads. Raises PermissionError.
        """
        replica_rows = (row for reader in self._readers for row in reader.replicas())
        mine = (row for row in replica_rows if self._gvc in (None, row.key.gvc))
        return sorted(mine, key=lambda row: (row.key, row.location, row.name))
