"""Recent deletes without an approval, so that many small runs cannot exceed the limit of a large one."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey
from reconciler.times import ExpiryTime

HOUR = 3600.0
"""Seconds for which a delete counts."""


class Deletions:
    """One row for each source and key. A delete counts for an hour, whatever the clock is set to meanwhile.

    Times are seconds since the epoch by a clock that was not set within the last hour (``ExpiryTime.steady``).
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, source: str, keys: Iterable[AnyKey], expiry: ExpiryTime) -> None:
        """Record that ``source`` deletes ``keys`` now; removes expired rows.

        Once a clock that was set back is trusted, rows from the future count from now on, and never for years.
        """
        at = expiry.steady
        with self._db.transaction():
            self._db.write("DELETE FROM deletions WHERE at + ? <= ?", (HOUR, at))
            self._db.write("UPDATE deletions SET at = ? WHERE at > ?", (at, at))
            rows = [(source, str(key), at) for key in keys]
            self._db.write_many("INSERT OR REPLACE INTO deletions VALUES (?, ?, ?)", rows)

    def recent(self, source: str, expiry: ExpiryTime) -> dict[str, float]:
        """The delete time of each key that counts now, by the clock of now."""
        at = expiry.steady
        sql = "SELECT key, min(at, ?) + ? FROM deletions WHERE source = ? AND at + ? > ? ORDER BY key"
        return dict(self._db.all(sql, (at, expiry.now - at, source, HOUR, at)))
