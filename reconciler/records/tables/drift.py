"""The differences between observed and recorded resources at the last check, and the time of that check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey

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
        return [DriftRow(*(*row[:-1], bool(row[-1]))) for row in rows]

    def last_check(self) -> DriftCheck:
        """The last check of the daemon."""
        return DriftCheck(self.checked(), self.all())

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

    def checked(self) -> float | None:
        """When the locations were last checked (seconds since the epoch), None if never."""
        at = self._db.value("SELECT value FROM meta WHERE name = ?", (CHECKED,))
        return None if at is None else float(at)

    def check(self, at: float) -> None:
        """Record that the locations were checked at ``at``."""
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (CHECKED, at))
