"""The last good revision of each source that was loaded, and the last commit that it took from each branch."""

from __future__ import annotations

import msgspec

from reconciler.records.database import Database


class SourceRow(msgspec.Struct, frozen=True):
    """What was loaded last: the commit, the tree at the source's path, and what decided which files are taken."""

    name: str
    ref: str
    commit: str
    tree: str
    selection: str
    author: str = ""
    subject: str = ""
    time: int = 0


class Sources:
    """One row a source."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, name: str) -> SourceRow | None:
        """What was loaded last of the source, None where nothing was yet."""
        row = self._db.one("SELECT * FROM sources WHERE name = ?", (name,))
        return None if row is None else SourceRow(*row)

    def put(self, row: SourceRow) -> None:
        """Remember ``row`` as the last good revision of its source."""
        self._db.write("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(row))

    def forget(self, name: str) -> None:
        """Load the source from nothing next time; the index of its resources stays until then."""
        self._db.write("DELETE FROM sources WHERE name = ?", (name,))

    def followed(self, name: str, ref: str) -> str:
        """The commit that the source took last from ``ref`` (its full name), "" where it took none.

        It stays as it is while an operator holds the source at another revision.
        """
        return str(self._db.value("SELECT commit_id FROM followed WHERE source = ? AND ref = ?", (name, ref)) or "")

    def put_followed(self, name: str, ref: str, commit: str) -> None:
        """Remember that the source took ``commit`` from ``ref``."""
        if self.followed(name, ref) != commit:
            self._db.write("INSERT OR REPLACE INTO followed VALUES (?, ?, ?)", (name, ref, commit))

    def names(self) -> list[str]:
        """The sources that were ever loaded, sorted."""
        return [name for (name,) in self._db.all("SELECT name FROM sources ORDER BY name")]
