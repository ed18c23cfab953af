"""What was found otherwise at its location than recorded, at the last look; and when that was."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey

CHECKED = "drift_checked"
"""Name in the table ``meta`` of the time of the last look."""


class DriftRow(msgspec.Struct, frozen=True, gc=False):
    """One difference since ``since`` (seconds since the epoch), packed by who found it.

    ``source`` is whose resource it is, empty where it is nobody's; ``fought`` says that healing it was given up.
    """

    key: str
    location: str
    source: str
    since: float
    packed: bytes
    fought: bool = False


class Drifts:
    """One row a key and location, as long as it differs."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self, source: str | None = None) -> list[DriftRow]:
        """Every difference, or those of ``source``, in order of key and location."""
        sql = "SELECT key, location, source, since, packed, fought FROM drifts"
        where, args = (" WHERE source = ?", (source,)) if source is not None else ("", ())
        rows = self._db.all(f"{sql}{where} ORDER BY key, location", args)
        return [DriftRow(*(*row[:-1], bool(row[-1]))) for row in rows]

    def put_many(self, rows: Iterable[DriftRow]) -> None:
        """Note differences, each in the place of what was known of its key and location."""
        self._db.write_many(
            "INSERT OR REPLACE INTO drifts (key, location, source, since, packed, fought) VALUES (?, ?, ?, ?, ?, ?)",
            (msgspec.structs.astuple(row) for row in rows),
        )

    def remove(self, key: AnyKey, location: str) -> None:
        """It differs no more."""
        self._db.write("DELETE FROM drifts WHERE key = ? AND location = ?", (str(key), location))

    def checked(self) -> float | None:
        """When the locations were last looked at (seconds since the epoch), None where nobody ever did."""
        at = self._db.value("SELECT value FROM meta WHERE name = ?", (CHECKED,))
        return None if at is None else float(at)

    def check(self, at: float) -> None:
        """The locations were looked at, at ``at``."""
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (CHECKED, at))
