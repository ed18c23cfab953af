"""Restarts of workloads that operators requested: counted, so that pending restarts still happen."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class Restarts:
    """One row for each key, with the last operator."""

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
        """The number of requested restarts of ``key``."""
        return int(self._db.value("SELECT count FROM restarts WHERE key = ?", (str(key),)) or 0)

    def sweep(self) -> None:
        """Forget the restarts of workloads that are no longer recorded."""
        self._db.write("DELETE FROM restarts WHERE key NOT IN (SELECT key FROM applied)")
