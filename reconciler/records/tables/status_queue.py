"""Keys whose status changed: those whose file is not written yet, of which a crash loses none, and the last ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from reconciler.model.key import Kind
from reconciler.records.database import Database
from reconciler.records.sql import AnyKey, prefix_range


class TakenKeys(msgspec.Struct, frozen=True):
    """Keys (sorted) whose status was not written when they were read, and the bound that ``clear`` needs."""

    keys: list[str]
    upto: int


class StatusQueue:
    """Keys by source, each with a new number whenever it is added."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add_many(self, source: str, keys: Iterable[AnyKey]) -> None:
        """Queue ``keys`` because their status changed, all or none; a queued key gets a new number."""
        rows = [(source, str(key)) for key in keys]
        self._db.write_many("INSERT OR REPLACE INTO pending (source, key) VALUES (?, ?)", rows)

    def take(self, source: str) -> TakenKeys:
        """The keys to write now. They stay in the queue until ``clear``."""
        rows = self._db.all("SELECT key, seq FROM pending WHERE source = ? ORDER BY key", (source,))
        return TakenKeys([key for key, _ in rows], max((seq for _, seq in rows), default=0))

    def clear(self, source: str, keys: Iterable[AnyKey], upto: int) -> None:
        """Remove ``keys``, whose status as of ``take`` is written; a key that was added again later stays."""
        self._db.write_many(
            "DELETE FROM pending WHERE source = ? AND key = ? AND seq <= ?", [(source, str(key), upto) for key in keys]
        )

    def clear_all(self, source: str) -> None:
        """Remove all keys of ``source``, whose status is no longer written."""
        self._db.write("DELETE FROM pending WHERE source = ?", (source,))

    def count(self, source: str) -> int:
        """The number of keys in the queue."""
        return int(self._db.value("SELECT count(*) FROM pending WHERE source = ?", (source,)))


class StatusChange(msgspec.Struct, frozen=True):
    """A change of the resource ``key``; ``number`` increases with every change.

    ``before`` is its manifest before, b"" if it was not applied, and None if the manifest did not change.
    """

    number: int
    key: str
    before: bytes | None


class Changes:
    """At least the last 20,000 changes in their order, written by triggers: whatever changes a status is one."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def newest(self) -> int:
        """The number of the last change, 0 before the first."""
        return int(self._db.value("SELECT max(seq) FROM changes") or 0)

    def has_all_after(self, number: int) -> bool:
        """Whether every change after ``number``, which is that of a past one, is still here."""
        oldest = int(self._db.value("SELECT min(seq) FROM changes") or 1)
        return oldest - 1 <= number <= self.newest()

    def after(self, number: int, limit: int) -> list[StatusChange]:
        """At most ``limit`` changes after ``number``, oldest first."""
        rows = self._db.all("SELECT seq, key, before FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", (number, limit))
        return [StatusChange(*row) for row in rows]

    def list_edited(self, after: int, kinds: Sequence[Kind]) -> list[str]:
        """The keys of ``kinds`` whose manifests changed after the number ``after``, in order."""
        ranges = " OR ".join(["key >= ? AND key < ?"] * len(kinds))
        bounds = [bound for kind in kinds for bound in prefix_range(f"{kind}/")]
        edited = f"seq > ? AND before IS NOT NULL AND ({ranges})"
        rows = self._db.all(f"SELECT DISTINCT key FROM changes WHERE {edited} ORDER BY key", (after, *bounds))
        return [str(key) for (key,) in rows]
