"""The replicas of all locations and their usage, from the engines' readers; needs no daemon."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.engines.plugin import make_readers
from reconciler.engines.reading import ReplicaRow, SupportsReplicaRows
from reconciler.errors import EngineError
from reconciler.settings import Settings


class ReplicaReader:
    """Reads the replicas at the locations whose engines have some, of ``gvc`` or (None) of all."""

    def __init__(self, settings: Settings, gvc: str | None = None) -> None:
        self._readers = [reader for reader in make_readers(settings) if isinstance(reader, SupportsReplicaRows)]
        self._gvc = gvc
        self._faults: dict[str, str] = {}

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations whose engines have replicas, sorted."""
        return tuple(reader.location for reader in self._readers)

    @property
    def has_locations(self) -> bool:
        """Whether any location can have replicas."""
        return bool(self._readers)

    @property
    def faults(self) -> Mapping[str, str]:
        """Why a location did not answer when it was last asked, by location."""
        return self._faults

    def read(self) -> list[ReplicaRow]:
        """The replicas now, in order of workload, location and name; CPU since the last call, None at the first.

        Those of locations that do not answer are missing; ``faults`` names these. Blocks while it reads. Raises
        PermissionError, and EngineError if no location answers.
        """
        errors: dict[str, EngineError] = {}
        rows: list[ReplicaRow] = []
        for reader in self._readers:
            try:
                rows += reader.replicas()
            except EngineError as error:
                errors[reader.location] = error
        self._faults = {location: str(error) for location, error in errors.items()}
        if errors and len(errors) == len(self._readers):
            raise next(iter(errors.values()))
        mine = (row for row in rows if self._gvc in (None, row.key.gvc))
        return sorted(mine, key=lambda row: (row.key, row.location, row.name))
