"""When the records were last backed up, and whether a later try failed."""

from __future__ import annotations

from typing import Any, NamedTuple

from reconciler.records.database import Database
from reconciler.records.sql import stored_row

TAKEN, FAILED, FAILURE, AWAITED = "backup_taken", "backup_failed", "backup_failure", "backup_awaited"
"""Names of the rows in ``meta``."""


class BackupTimes(NamedTuple):
    """When the newest backup was begun, and when a later try failed with the message ``failure``.

    ``awaited`` is when a daemon first found that there was no backup. Times are in seconds since the epoch, None for
    never.
    """

    taken: float | None = None
    failed: float | None = None
    failure: str = ""
    awaited: float | None = None


class Backups:
    """What is known of the backups that `reconciler backup` has made."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self) -> BackupTimes:
        """What is known of them."""
        sql = "SELECT name, value FROM meta WHERE name IN (?, ?, ?, ?)"
        values: dict[str, Any] = dict(self._db.all(sql, (TAKEN, FAILED, FAILURE, AWAITED)))
        with stored_row("meta", TAKEN):
            taken, failed, awaited = (
                float(values[name]) if name in values else None for name in (TAKEN, FAILED, AWAITED)
            )
        return BackupTimes(taken, failed, str(values.get(FAILURE, "")), awaited)

    def record_success(self, at: float) -> None:
        """Record a backup of the records as they were at ``at``; it ends a failure."""
        with self._db.transaction():
            self._db.write("DELETE FROM meta WHERE name IN (?, ?, ?)", (FAILED, FAILURE, AWAITED))
            self._set(TAKEN, at)

    def record_failure(self, at: float, message: str) -> None:
        """Record that a try failed at ``at``."""
        with self._db.transaction():
            self._set(FAILED, at)
            self._set(FAILURE, message)

    def set_awaited(self, at: float | None) -> None:
        """Record since when a daemon waits for a first backup; None: it does not."""
        with self._db.transaction():
            self._db.write("DELETE FROM meta WHERE name = ?", (AWAITED,))
            if at is not None:
                self._set(AWAITED, at)

    def _set(self, name: str, value: float | str) -> None:
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
