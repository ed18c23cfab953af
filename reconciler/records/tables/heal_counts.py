"""How often drift was healed of late, so that a fight with somebody else can be told from an accident."""

from __future__ import annotations

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey

HOUR = 3600.0
"""Seconds for which a heal counts."""


class HealCounts:
    """One row a heal. Those of another digest, and those older than an hour, count no more."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, key: AnyKey, location: str, digest: str, at: float) -> None:
        """``key`` was brought back to ``digest`` at ``location``; what is over goes with it."""
        with self._db.transaction():
            self._db.write("DELETE FROM heals WHERE at <= ? OR at > ?", (at - HOUR, at))
            self._db.write("INSERT INTO heals (key, location, digest, at) VALUES (?, ?, ?, ?)",
                           (str(key), location, digest, at))  # fmt: skip

    def count(self, key: AnyKey, location: str, digest: str, now: float) -> int:
        """How often it was brought back to ``digest`` within the hour before ``now``."""
        sql = "SELECT count(*) FROM heals WHERE key = ? AND location = ? AND digest = ? AND at > ? AND at <= ?"
        return int(self._db.value(sql, (str(key), location, digest, now - HOUR, now)))

    def forget(self, key: AnyKey) -> int:
        """Begin to count anew, and let a fight over ``key`` be taken up again; how many heals and fights there were."""
        with self._db.transaction():
            fights = self._db.write("UPDATE drifts SET fought = 0 WHERE key = ? AND fought", (str(key),)).rowcount
            return fights + self._db.write("DELETE FROM heals WHERE key = ?", (str(key),)).rowcount
