"""Resources that an operator has marked to stay when they leave Git."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class Orphans:
    """One row for each key, with the operator."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def put(self, key: AnyKey, by: str) -> None:
        """Mark ``key``: it is never deleted."""
        self._db.write("INSERT OR REPLACE INTO orphans VALUES (?, ?, ?)", (str(key), by, self._now()))

    def remove(self, key: AnyKey) -> bool:
        """Remove the mark of ``key``; returns whether there was one."""
        there = self._db.one("SELECT 1 FROM orphans WHERE key = ?", (str(key),)) is not None
        self._db.write("DELETE FROM orphans WHERE key = ?", (str(key),))
        return there

    def all(self) -> dict[str, str]:
        """The marked keys, with the operator of each."""
        return dict(self._db.all('SELECT key, "by" FROM orphans ORDER BY key'))
