"""Sources that an operator has pinned to an older revision."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reconciler.records.database import Database


class Pin(msgspec.Struct, frozen=True):
    """``source`` is pinned to ``commit``, which ``by`` named as ``expression``; ``at`` in seconds since the epoch."""

    source: str
    commit: str
    expression: str
    reason: str
    by: str
    at: float


class Pins:
    """One row for each source."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def put(self, source: str, commit: str, expression: str, reason: str, by: str) -> None:
        """Pin ``source`` to ``commit``; replaces an earlier pin."""
        row = (source, commit, expression, reason, by, self._now())
        self._db.write("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?, ?)", row)

    def remove(self, source: str) -> bool:
        """Unpin ``source``, so that it follows its branch again; returns whether it was pinned."""
        there = self.get(source) is not None
        self._db.write("DELETE FROM pins WHERE source = ?", (source,))
        return there

    def get(self, source: str) -> Pin | None:
        """The pin of ``source``, None if it follows its branch."""
        row = self._db.one(
            'SELECT source, commit_id, expression, reason, "by", at FROM pins WHERE source = ?', (source,)
        )
        return None if row is None else Pin(*row)
