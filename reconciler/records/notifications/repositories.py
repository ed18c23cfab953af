"""Where the commits of sources are shown at forges, as it was last known, in rows of ``meta``."""

from __future__ import annotations

from reconciler.records.database import Database

PLACE = "notification_place/"
"""How the names of the rows begin that have a repository as the settings had it last."""
FORMER = "notification_former/"
"""The same for one that the settings have no longer, where something may be left to say."""


class ForgeRepositories:
    """Rows by forge and source; their content is encoded by reconciler/notifications/forge_repositories.py."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def list(self, prefix: str) -> list[bytes]:
        """The rows whose names begin with ``prefix``, which is PLACE or FORMER, in order."""
        sql = "SELECT value FROM meta WHERE substr(name, 1, ?) = ? ORDER BY name"
        return [value for (value,) in self._db.all(sql, (len(prefix), prefix))]

    def put(self, prefix: str, forge: str, source: str, body: bytes) -> None:
        """Write the row of ``source`` at ``forge``."""
        self._db.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{prefix}{forge}/{source}", body))

    def drop(self, prefix: str, forge: str, source: str) -> None:
        """Remove the row of ``source`` at ``forge``."""
        self._db.write("DELETE FROM meta WHERE name = ?", (f"{prefix}{forge}/{source}",))
