"""The differences between observed and recorded resources at the last check, and the time of that check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, time_of, time_parameters
from reconciler.times import ExpiryTime

HOUR = 3600.0
"""Seconds for which a heal counts."""

CHECKED = "drift_checked"
"""Name of the row in ``meta`` with the time of the last check."""


class DriftRow(msgspec.Struct, frozen=True, gc=False):
    """One difference since ``since`` (seconds since the epoch), in encoded form.

    ``source`` owns the resource, empty if none does; ``in_conflict`` means that healing has stopped.
    """

    key: str
    location: str
    source: str
    since: float
    packed: bytes
    in_conflict: bool = False


class DriftCheck(NamedTuple):
    """The differences of a check, and its time in seconds since the epoch; None before the first check."""

    at: float | None
    rows: list[DriftRow]


class Drifts:
    """One row for each key and location that differs."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self, source: str | None = None) -> list[DriftRow]:
        """Every difference, or those of ``source``, in order of key and location."""
        sql = "SELECT key, location, source, since, packed, in_conflict FROM drifts"
        where, args = (" WHERE source = ?", (source,)) if source is not None else ("", ())
        rows = self._db.all(f"{sql}{where} ORDER BY key, location", args)
        return [
            DriftRow(key, location, owner, since, packed, bool(in_conflict))
            for key, location, owner, since, packed, in_conflict in rows
        ]

    def of_key(self, key: AnyKey) -> list[DriftRow]:
        """The differences of ``key``, in order of location."""
        sql = """SELECT key, location, source, since, packed, in_conflict FROM drifts WHERE key = ? ORDER BY location"""
        rows = self._db.all(sql, (str(key),))
        return [
            DriftRow(name, location, owner, since, packed, bool(in_conflict))
            for name, location, owner, since, packed, in_conflict in rows
        ]

    def count(self, source: str) -> int:
        """The number of differences of ``source``."""
        return int(self._db.value("SELECT count(*) FROM drifts WHERE source = ?", (source,)))

    def last_check(self) -> DriftCheck:
        """The last check of the daemon."""
        return DriftCheck(self.last_checked_at(), self.all())

    def put_many(self, rows: Iterable[DriftRow]) -> None:
        """Write differences; each replaces an earlier one of its key and location."""
        columns = "key, location, source, since, packed, in_conflict"
        self._db.write_many(
            f"INSERT OR REPLACE INTO drifts ({columns}) VALUES (?, ?, ?, ?, ?, ?)",
            (msgspec.structs.astuple(row) for row in rows),
        )

    def remove(self, key: AnyKey, location: str) -> None:
        """Remove a difference that is resolved."""
        self._db.write("DELETE FROM drifts WHERE key = ? AND location = ?", (str(key), location))

    def last_checked_at(self) -> float | None:
        """When the locations were last checked (seconds since the epoch), None if never."""
        at = self._db.value("SELECT value FROM meta WHERE name = ?", (CHECKED,))
        return None if at is None else float(at)

    def check(self, at: float) -> None:
        """Record that the locations were checked at ``at``."""
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (CHECKED, at))


class HealCounts:
    """One row for each heal. Heals of another digest, and those older than an hour, do not count."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, key: AnyKey, location: str, digest: str, expiry: ExpiryTime) -> None:
        """Record that ``key`` was healed to ``digest`` at ``location``; removes expired rows."""
        with self._db.transaction():
            over = f"DELETE FROM heals WHERE at + ? <= {time_of('at')} OR at > ?"
            self._db.write(over, (HOUR, *time_parameters(expiry), expiry.latest))
            self._db.write(
                "INSERT INTO heals (key, location, digest, at) VALUES (?, ?, ?, ?)",
                (str(key), location, digest, expiry.now),
            )

    def count(self, key: AnyKey, location: str, digest: str, expiry: ExpiryTime) -> int:
        """The number of heals to ``digest`` within the last hour."""
        sql = f"""SELECT count(*) FROM heals WHERE key = ? AND location = ? AND digest = ?
            AND at + ? > {time_of("at")} AND at <= ?"""
        values = (str(key), location, digest, HOUR, *time_parameters(expiry), expiry.now)
        return int(self._db.value(sql, values))

    def forget(self, key: AnyKey) -> int:
        """Reset the count of ``key`` and its conflicts; returns the number of removed heals and conflicts."""
        with self._db.transaction():
            fights = self._db.write(
                "UPDATE drifts SET in_conflict = 0 WHERE key = ? AND in_conflict", (str(key),)
            ).rowcount
            return fights + self._db.write("DELETE FROM heals WHERE key = ?", (str(key),)).rowcount
