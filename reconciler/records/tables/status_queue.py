"""Keys whose status file is not written yet; none may be lost, whenever a crash comes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class TakenKeys(msgspec.Struct, frozen=True):
    """Keys (sorted) whose status was not written when they were read, and the bound that ``clear`` needs."""

    keys: list[str]
    upto: int


class StatusQueue:
    """Keys by source, each numbered anew whenever it is added."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add_many(self, source: str, keys: Iterable[AnyKey]) -> None:
        """The status of ``keys`` changed, all or none noted; a key that is there already is numbered anew."""
        rows = [(source, str(key)) for key in keys]
        self._db.write_many("INSERT OR REPLACE INTO pending (source, key) VALUES (?, ?)", rows)

    def take(self, source: str) -> TakenKeys:
        """What is to be written now. The keys stay here until ``clear``."""
        rows = self._db.all("SELECT key, seq FROM pending WHERE source = ? ORDER BY key", (source,))
        return TakenKeys([key for key, _ in rows], max((seq for _, seq in rows), default=0))

    def clear(self, source: str, keys: Iterable[AnyKey], upto: int) -> None:
        """The status of ``keys`` as of ``take`` is written; one that was added after it stays."""
        self._db.write_many(
            "DELETE FROM pending WHERE source = ? AND key = ? AND seq <= ?", [(source, str(key), upto) for key in keys]
        )

    def clear_all(self, source: str) -> None:
        """Nobody writes the status of ``source`` any more."""
        self._db.write("DELETE FROM pending WHERE source = ?", (source,))

    def count(self, source: str) -> int:
        """How many keys wait to be written."""
        return int(self._db.value("SELECT count(*) FROM pending WHERE source = ?", (source,)))
