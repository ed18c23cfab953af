"""Restarts of workloads that an operator asked for: counted, so that what has not restarted yet still does."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class Restarts:
    """One row a key, with who asked last."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def request(self, key: AnyKey, by: str) -> None:
        """Count one more restart of ``key``."""
        self._db.write(
            """INSERT INTO restarts VALUES (?1, 1, ?2, ?3) ON CONFLICT (key)
            DO UPDATE SET count = count + 1, "by" = ?2, at = ?3""",
            (str(key), by, self._now()),
        )

    def count(self, key: AnyKey) -> int:
        """How often a restart of ``key`` was asked for."""
        return int(self._db.value("SELECT count FROM restarts WHERE key = ?", (str(key),)) or 0)

    def sweep(self) -> None:
        """Forget the restarts of what is recorded no more."""
        self._db.write("DELETE FROM restarts WHERE key NOT IN (SELECT key FROM applied)")
