"""Counts recent heals of drift, to distinguish a conflict with another writer from an accident."""

from __future__ import annotations

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey

HOUR = 3600.0
"""Seconds for which a heal counts."""


class HealCounts:
    """One row for each heal. Heals of another digest, and those older than an hour, do not count."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, key: AnyKey, location: str, digest: str, at: float) -> None:
        """Record that ``key`` was healed to ``digest`` at ``location``; removes expired rows."""
        with self._db.transaction():
            self._db.write("DELETE FROM heals WHERE at <= ? OR at > ?", (at - HOUR, at))
            self._db.write("INSERT INTO heals (key, location, digest, at) VALUES (?, ?, ?, ?)",
                           (str(key), location, digest, at))  # fmt: skip

    def count(self, key: AnyKey, location: str, digest: str, now: float) -> int:
        """The number of heals to ``digest`` within the hour before ``now``."""
        sql = "SELECT count(*) FROM heals WHERE key = ? AND location = ? AND digest = ? AND at > ? AND at <= ?"
        return int(self._db.value(sql, (str(key), location, digest, now - HOUR, now)))

    def forget(self, key: AnyKey) -> int:
        """Reset the count of ``key`` and its conflicts; returns the number of removed heals and conflicts."""
        with self._db.transaction():
            fights = self._db.write(
                "UPDATE drifts SET in_conflict = 0 WHERE key = ? AND in_conflict", (str(key),)
            ).rowcount
            return fights + self._db.write("DELETE FROM heals WHERE key = ?", (str(key),)).rowcount
