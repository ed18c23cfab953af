"""Conditions of objects that are no resources: a source, its fetches, its status pushes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from reconciler.iteration import iterate_batches
from reconciler.records.database import Database
from reconciler.records.sql import prefix_range

HOST = "/host"
"""The scope of conditions of the daemon itself."""

CHANNEL = "/channel/"
"""The beginning of the scopes of conditions of channels of notifications."""

BATCH = 1000
"""The most scopes that one statement asks for."""


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A statement about a resource or source: whether it holds, a CamelCase reason, and a message for people.

    ``status.conditions.condition`` creates them.
    """

    type: str
    status: bool
    reason: str
    message: str


class ScopeCondition(Condition, frozen=True, gc=False):
    """A recorded condition; ``since`` (seconds since the epoch) is when ``status`` last changed."""

    since: float

    @property
    def condition(self) -> Condition:
        """The condition without its time."""
        return Condition(self.type, self.status, self.reason, self.message)


class Conditions:
    """One row for each scope (such as the name of a source) and type."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def set(self, scope: str, condition: Condition) -> bool:
        """Record ``condition``; returns whether status, reason or message changed."""
        before = next(
            (scope_condition for scope_condition in self.get(scope) if scope_condition.type == condition.type), None
        )
        if before is not None and before.condition == condition:
            return False
        since = before.since if before is not None and before.status == condition.status else self._now()
        row = (str(condition.type), condition.status, str(condition.reason), condition.message)
        self._db.write("INSERT OR REPLACE INTO conditions VALUES (?, ?, ?, ?, ?, ?)", (scope, *row, since))
        return True

    def get(self, scope: str) -> list[ScopeCondition]:
        """The conditions of ``scope``, in order of type."""
        sql = "SELECT type, status, reason, message, since FROM conditions WHERE scope = ? ORDER BY type"
        return [ScopeCondition(kind, bool(status), *rest) for kind, status, *rest in self._db.all(sql, (scope,))]

    def scopes_where(self, type: str, scopes: Iterable[str]) -> list[str]:  # noqa: A002
        """Those of ``scopes`` whose condition ``type`` is true, in order."""
        sql = "SELECT scope FROM conditions WHERE scope IN (SELECT value FROM json_each(?)) AND type = ? AND status"
        names: set[str] = set()
        for batch in iterate_batches(scopes, BATCH):
            names.update(scope for (scope,) in self._db.all(sql, (msgspec.json.encode(batch).decode(), type)))
        return sorted(names)

    def scopes_with(self, type: str) -> list[str]:  # noqa: A002
        """Every scope whose condition ``type`` is true, in order."""
        rows = self._db.all("SELECT scope FROM conditions WHERE type = ? AND status ORDER BY scope", (type,))
        return [scope for (scope,) in rows]

    def scopes_below(self, prefix: str) -> list[str]:
        """Every scope that begins with ``prefix``, in order."""
        sql = "SELECT DISTINCT scope FROM conditions WHERE scope >= ? AND scope < ? ORDER BY scope"
        return [scope for (scope,) in self._db.all(sql, prefix_range(prefix))]

    def drop(self, scope: str, type: str) -> None:  # noqa: A002
        """Remove one condition that no longer applies."""
        self._db.write("DELETE FROM conditions WHERE scope = ? AND type = ?", (scope, type))

    def forget(self, scope: str) -> None:
        """Remove all conditions of ``scope``, which no longer exists."""
        self._db.write("DELETE FROM conditions WHERE scope = ?", (scope,))
