"""What operators suspend, a source or a resource, and the workloads whose requests they hold."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reconciler.model.key import Key
from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, Expiry, stored_key, time_of, time_parameters
from reconciler.times import ExpiryTime

COLUMNS = 'target, reason, "by", at, until'
HOLD_COLUMNS = 'key, reason, "by", at, until'
_TIME = time_of("at")


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

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._db = database
        self._now = now
        self._expiry = expiry

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
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE target = ? AND (until IS NULL OR until > {_TIME})"
        row = self._db.one(sql, (target, *time_parameters(self._expiry())))
        return None if row is None else Suspension(*row)

    def all(self) -> list[Suspension]:
        """All current suspensions, by target."""
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE until IS NULL OR until > {_TIME} ORDER BY target"
        return [Suspension(*row) for row in self._db.all(sql, time_parameters(self._expiry()))]

    def over(self) -> list[Suspension]:
        """Expired suspensions that are not removed yet, by target."""
        sql = f"SELECT {COLUMNS} FROM suspensions WHERE until <= {_TIME} ORDER BY target"
        return [Suspension(*row) for row in self._db.all(sql, time_parameters(self._expiry()))]

    def seconds_left(self) -> float | None:
        """The seconds until the next suspension expires, None if none does."""
        return _seconds_left(self._db, "suspensions", self._expiry())


class TrafficHold(msgspec.Struct, frozen=True):
    """The requests of the workload ``key`` wait until ``until``. Times are in seconds since the epoch."""

    key: Key
    reason: str
    by: str
    at: float
    until: float


class TrafficHolds:
    """One row for each workload. Only ``over`` returns holds whose time is over."""

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._db = database
        self._now = now
        self._expiry = expiry

    def put(self, key: AnyKey, reason: str, by: str, until: float) -> None:
        """Hold the requests of ``key``; replaces an earlier hold."""
        row = (str(key), reason, by, self._now(), until)
        self._db.write("INSERT OR REPLACE INTO traffic_holds VALUES (?, ?, ?, ?, ?)", row)

    def remove(self, key: AnyKey) -> bool:
        """End the hold of ``key``; returns whether it was current."""
        current = any(hold.key == key for hold in self.all())
        self._db.write("DELETE FROM traffic_holds WHERE key = ?", (str(key),))
        return current

    def all(self) -> list[TrafficHold]:
        """All current holds, by key."""
        return self._list(f"until > {_TIME}")

    def over(self) -> list[TrafficHold]:
        """Holds whose time is over and that are not removed yet, by key."""
        return self._list(f"until <= {_TIME}")

    def seconds_left(self) -> float | None:
        """The seconds until the next hold ends, None if none does."""
        return _seconds_left(self._db, "traffic_holds", self._expiry())

    def _list(self, where: str) -> list[TrafficHold]:
        sql = f"SELECT {HOLD_COLUMNS} FROM traffic_holds WHERE {where} ORDER BY key"
        rows = self._db.all(sql, time_parameters(self._expiry()))
        return [TrafficHold(stored_key(key, "traffic_holds"), *rest) for key, *rest in rows]


def _seconds_left(database: Database, table: str, expiry: ExpiryTime) -> float | None:
    sql = f"SELECT min(rest) FROM (SELECT until - {_TIME} AS rest FROM {table}) WHERE rest > 0"
    left: float | None = database.value(sql, time_parameters(expiry))
    return left
