"""Resources that stay when they leave Git, because an operator said so."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class Orphans:
    """One row a key, with who said it."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def put(self, key: AnyKey, by: str) -> None:
        """Never delete ``key``."""
        self._db.write("INSERT OR REPLACE INTO orphans VALUES (?, ?, ?)", (str(key), by, self._now()))

    def remove(self, key: AnyKey) -> bool:
        """Treat ``key`` like any other again; whether it was marked."""
        there = self._db.one("SELECT 1 FROM orphans WHERE key = ?", (str(key),)) is not None
        self._db.write("DELETE FROM orphans WHERE key = ?", (str(key),))
        return there

    def all(self) -> dict[str, str]:
        """Who marked which key."""
        return dict(self._db.all('SELECT key, "by" FROM orphans ORDER BY key'))
