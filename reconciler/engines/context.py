"""The inputs of an engine, with what it reads of the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from reconciler.clock import Clock
from reconciler.engines.protocol import SecretReader
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import TrafficHold
from reconciler.settings import Settings


class LocationRecords:
    """What the engine of ``location`` reads of the records; it writes nothing. Every method raises RecordsError."""

    def __init__(self, records: Records, location: str) -> None:
        self._records = records
        self.location = location

    @property
    def secret_key(self) -> bytes:
        """The key for hashes of values that nobody may guess."""
        return self._records.secret_key

    def here(self, key: Key) -> Record | None:
        """The record of ``key`` at this location."""
        return self._records.applied.at(key, self.location)

    def list_here(self, keys: Iterable[Key]) -> dict[Key, Record]:
        """The records of ``keys`` at this location, read at once; keys without one are left out."""
        found = self._records.applied.get_many(keys).values()
        return {record.key: record for same in found for record in same if record.location == self.location}

    def find_shared(self, key: Key) -> Record | None:
        """The record of ``key`` that has no location: a GVC, a location, an identity, a secret."""
        return self._records.applied.at(key, "")

    def find_source(self, key: Key) -> str:
        """The source whose manifest declares ``key``; "" if none does."""
        entry = self._records.desired.get(key)
        return entry.source if entry is not None else ""

    def all_here(self, engine: str) -> Iterator[Record]:
        """Everything that ``engine`` has at this location."""
        return self._records.applied.items_at(self.location, engine)

    def list_keys(self, engine: str) -> list[Key]:
        """The keys of what ``engine`` has at this location."""
        return [stored_key(key, "applied") for key, _, _ in self._records.applied.scan_at(self.location, engine)]

    def domains(self) -> Iterator[Record]:
        """All domains."""
        return self._records.applied.items(Kind.DOMAIN)

    def referrers(self, volumeset: Key) -> Iterator[Key]:
        """The resources whose manifests name ``volumeset``."""
        return (stored_key(text, "referrers") for text in self._records.desired.referrers(volumeset))

    def journaled_keys(self) -> set[Key]:
        """The resources of this location whose step has begun and has no outcome: it is performed again."""
        rows = self._records.journal.open()
        return {stored_key(row.key, "journal") for row in rows if row.location == self.location}

    def revision(self, source: str) -> str:
        """The revision that ``source`` applies now; "" before its first run."""
        run = self._records.runs.last(source)
        return run.revision if run is not None else ""

    def count_restarts(self, key: Key) -> int:
        """How often a restart of the workload ``key`` was requested."""
        return self._records.restarts.count(key)

    def traffic_holds(self) -> Sequence[TrafficHold]:
        """The workloads whose requests operators hold."""
        return self._records.traffic_holds.all()

    def is_command_open(self, command_id: str) -> bool:
        """Whether the command with this id was not ended yet."""
        return self._records.commands.is_open(command_id)


class EngineContext(msgspec.Struct, frozen=True):
    """The inputs of the engine for one location (``""`` for resources without a location).

    A ``decommissioning`` engine ends what it ran there, because the location now has another engine. ``tables`` are for
    the one immediate engine, which writes the records itself; None for others.
    """

    records: LocationRecords
    settings: Settings
    clock: Clock
    secrets: SecretReader
    decommissioning: bool = False
    tables: Records | None = None

    @property
    def location(self) -> str:
        """The location of the engine."""
        return self.records.location
