"""Recent deletes without an approval, so that many small runs cannot exceed the limit of a large one."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, time_of, time_parameters
from reconciler.times import ExpiryTime

HOUR = 3600.0
"""Seconds for which a delete counts."""


class Deletions:
    """One row for each source and key; times are seconds since the epoch."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, source: str, keys: Iterable[AnyKey], expiry: ExpiryTime) -> None:
        """Record that ``source`` deletes ``keys`` now; removes expired rows.

        If the clock was set back, rows from the future count from now on: a delete counts for an hour, and never for
        years.
        """
        with self._db.transaction():
            over = f"DELETE FROM deletions WHERE at + ? <= {time_of('at')}"
            self._db.write(over, (HOUR, *time_parameters(expiry)))
            if expiry.is_steady:
                self._db.write("UPDATE deletions SET at = ? WHERE at > ?", (expiry.now, expiry.now))
            rows = [(source, str(key), expiry.latest) for key in keys]
            self._db.write_many("INSERT OR REPLACE INTO deletions VALUES (?, ?, ?)", rows)

    def recent(self, source: str, expiry: ExpiryTime) -> dict[str, float]:
        """The delete time of each key that counts now."""
        sql = f"SELECT key, min(at, ?) FROM deletions WHERE source = ? AND at + ? > {time_of('at')} ORDER BY key"
        return dict(self._db.all(sql, (expiry.now, source, HOUR, *time_parameters(expiry))))
