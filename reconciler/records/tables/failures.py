"""Failed steps that wait for a retry, or for a person's attention."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.model.record import Failure
from reconciler.reasons import Reason
from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, stored_key

OF_SOURCE = """WHERE EXISTS (SELECT 1 FROM desired d WHERE d.key = failures.key AND d.source = ?1)
    OR EXISTS (SELECT 1 FROM inventory i WHERE i.key = failures.key AND i.source = ?1)"""


class Failures:
    """One row for each key and location: the last failure, until the step succeeds."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, failure: Failure) -> None:
        """Record ``failure``; replaces an earlier one of its key and location."""
        key, location, reason, *rest = msgspec.structs.astuple(failure)
        row = (str(key), location, reason.value, *rest)
        self._db.write("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def clear(self, key: AnyKey, location: str | None = None) -> None:
        """Forget the failure at ``location``, or (None) all of ``key``."""
        if location is None:
            self._db.write("DELETE FROM failures WHERE key = ?", (str(key),))
        else:
            self._db.write("DELETE FROM failures WHERE key = ? AND location = ?", (str(key), location))

    def retry_now(self, key: AnyKey, now: float) -> int:
        """Schedule a retry of the failed steps of ``key`` at once, after any number of failures; returns how many."""
        sql = "UPDATE failures SET next_attempt = ?, attempts = 0, retry = 1 WHERE key = ?"
        return self._db.write(sql, (now, str(key))).rowcount

    def clear_all(self, source: str) -> None:
        """Forget all failures of resources that ``source`` wants or owns."""
        self._db.write(f"DELETE FROM failures {OF_SOURCE}", (source,))

    def get(self, key: AnyKey) -> tuple[Failure, ...]:
        """The failures of ``key``, in order of location."""
        return tuple(self._select("WHERE key = ? ORDER BY location", (str(key),)))

    def all(self, source: str | None = None) -> list[Failure]:
        """All failures, or those of resources that ``source`` wants or owns, in order of key and location."""
        if source is None:
            return self._select("ORDER BY key, location")
        return self._select(f"{OF_SOURCE} ORDER BY key, location", (source,))

    def due(self, now: float) -> list[Failure]:
        """Failures that may be retried at ``now`` (seconds since the epoch), longest due first."""
        return self._select("WHERE retry AND next_attempt <= ? ORDER BY next_attempt, key, location", (now,))

    def next_attempt(self) -> float | None:
        """When the next retry is due (seconds since the epoch), None if there is none."""
        at: float | None = self._db.value("SELECT min(next_attempt) FROM failures WHERE retry")
        return at

    def count(self) -> int:
        """The number of failures."""
        return int(self._db.value("SELECT count(*) FROM failures"))

    def _select(self, rest: str, args: tuple[Any, ...] = ()) -> list[Failure]:
        rows = self._db.all(f"SELECT * FROM failures {rest}", args)
        return [
            Failure(
                stored_key(key, "failures"),
                location,
                Reason.from_stored(reason),
                message,
                attempts,
                since,
                due,
                bool(retry),
            )
            for key, location, reason, message, attempts, since, due, retry in rows
        ]
