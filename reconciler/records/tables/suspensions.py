"""Suspensions by operators: of a source, or of one resource."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reconciler.records.database import Database

COLUMNS = 'target, reason, "by", at, until'


def source_target(name: str) -> str:
    """The target name of a source, used in place of a key."""
    return f"source/{name}"


class Suspension(msgspec.Struct, frozen=True):
    """``target`` (``source/NAME``, or a key) is suspended until ``until`` (None: until an operator resumes it).

    Times are in seconds since the epoch.
    """

    target: str
    reason: str
    by: str
    at: float
    until: float | None = None


class Suspensions:
    """One row for each target. Only ``over`` returns expired suspensions."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def put(self, target: str, reason: str, by: str, until: float | None) -> None:
        """Suspend ``target``; replaces an earlier suspension."""
        row = (target, reason, by, self._now(), until)
        self._db.write("INSERT OR REPLACE INTO suspensions VALUES (?, ?, ?, ?, ?)", row)

    def remove(self, target: str) -> bool:
        """End the suspension of ``target``; returns whether there was one."""
        there = self.get(target) is not None
        self._db.write("DELETE FROM suspensions WHERE target = ?", (target,))
        return there

    def get(self, target: str) -> Suspension | None:
        """The current suspension of ``target``."""
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE target = ? AND (until IS NULL OR until > ?)"
        row = self._db.one(sql, (target, self._now()))
        return None if row is None else Suspension(*row)

    def all(self) -> list[Suspension]:
        """All current suspensions, by target."""
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE until IS NULL OR until > ? ORDER BY target"
        return [Suspension(*row) for row in self._db.all(sql, (self._now(),))]

    def over(self) -> list[Suspension]:
        """Expired suspensions that are not removed yet, by target."""
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE until <= ? ORDER BY target"
        return [Suspension(*row) for row in self._db.all(sql, (self._now(),))]

    def next_end(self) -> float | None:
        """When the next suspension expires, None if none does."""
        end: float | None = self._db.value("SELECT min(until) FROM suspensions WHERE until > ?", (self._now(),))
        return end
