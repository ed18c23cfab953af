"""Conditions of what is not a resource: a source, its fetches, its status pushes."""

from __future__ import annotations

import msgspec

from reconciler.records.database import Database

HOST = "/host"
"""The scope of conditions that are about the daemon and not about a source or resource."""


class ScopeCondition(msgspec.Struct, frozen=True):
    """One condition of a scope; ``since`` (seconds since the epoch) is when ``status`` last turned."""

    type: str
    status: bool
    reason: str
    message: str
    since: float


class Conditions:
    """One row a scope (the name of a source) and type."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def set(self, scope: str, type: str, status: bool, reason: str, message: str, at: float) -> bool:  # noqa: A002
        """Note how it stands; returns whether status, reason or message differ from before."""
        before = next((condition for condition in self.get(scope) if condition.type == type), None)
        if before and (before.status, before.reason, before.message) == (status, reason, message):
            return False
        since = before.since if before and before.status == status else at
        self._db.write(
            "INSERT OR REPLACE INTO conditions VALUES (?, ?, ?, ?, ?, ?)", (scope, type, status, reason, message, since)
        )
        return True

    def get(self, scope: str) -> list[ScopeCondition]:
        """The conditions of ``scope``, by type."""
        sql = "SELECT type, status, reason, message, since FROM conditions WHERE scope = ? ORDER BY type"
        return [ScopeCondition(kind, bool(status), *rest) for kind, status, *rest in self._db.all(sql, (scope,))]

    def drop(self, scope: str, type: str) -> None:  # noqa: A002
        """Forget one condition, which has no meaning any more."""
        self._db.write("DELETE FROM conditions WHERE scope = ? AND type = ?", (scope, type))

    def forget(self, scope: str) -> None:
        """Drop every condition of ``scope``, which exists no more."""
        self._db.write("DELETE FROM conditions WHERE scope = ?", (scope,))
