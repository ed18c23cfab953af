"""Steps in flight: written before they begin, and removed together with the record of their outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class JournalRow(msgspec.Struct, frozen=True, gc=False):
    """A step that began in run ``run``; ``step`` contains its encoded form."""

    id: int
    run: int
    key: str
    location: str
    action: str
    step: bytes


class NewStep(NamedTuple):
    """A step that begins; ``step`` is its encoded form."""

    key: AnyKey
    location: str
    action: str
    step: bytes


class Journal:
    """Rows that remain after a crash may or may not have been performed; their steps are performed again."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def begin(self, run: int, steps: Sequence[NewStep]) -> list[int]:
        """Write ``steps``, all or none; returns their ids in this order."""
        with self._db.transaction():
            first = int(self._db.value("SELECT coalesce(max(id), 0) + 1 FROM journal"))
            ids = list(range(first, first + len(steps)))
            rows = [(n, run, str(key), *rest) for n, (key, *rest) in zip(ids, steps, strict=True)]
            self._db.write_many("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", rows)
        return ids

    def end(self, ids: Iterable[int]) -> None:
        """Remove steps whose outcome is recorded in the same transaction."""
        self._db.write_many("DELETE FROM journal WHERE id = ?", [(number,) for number in ids])

    def open(self) -> list[JournalRow]:
        """Steps without an outcome, in the order in which they began."""
        return [JournalRow(*row) for row in self._db.all("SELECT * FROM journal ORDER BY id")]
