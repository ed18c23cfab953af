"""The last good revision of each source, and the last commit that it took from each branch."""

from __future__ import annotations

import msgspec

from reconciler.records.database import Database


class SourceRow(msgspec.Struct, frozen=True):
    """The last loaded revision: the commit, the tree at the source's path, and the digest of the file selection."""

    name: str
    ref: str
    commit: str
    tree: str
    selection: str
    author: str = ""
    subject: str = ""
    time: int = 0


class Sources:
    """One row for each source."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, name: str) -> SourceRow | None:
        """The last loaded revision of the source, None if there is none yet."""
        row = self._db.one("SELECT * FROM sources WHERE name = ?", (name,))
        return None if row is None else SourceRow(*row)

    def put(self, row: SourceRow) -> None:
        """Record ``row`` as the last good revision of its source."""
        self._db.write("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(row))

    def forget(self, name: str) -> None:
        """Forget the revision, so that the source is loaded completely next time; the index of its resources stays."""
        self._db.write("DELETE FROM sources WHERE name = ?", (name,))

    def followed_commit(self, name: str, ref: str) -> str:
        """The last commit that the source took from ``ref`` (its full name), "" if there is none.

        It does not change while an operator pins the source to another revision.
        """
        return str(self._db.value("SELECT commit_id FROM followed WHERE source = ? AND ref = ?", (name, ref)) or "")

    def put_followed(self, name: str, ref: str, commit: str) -> None:
        """Record that the source took ``commit`` from ``ref``."""
        if self.followed_commit(name, ref) != commit:
            self._db.write("INSERT OR REPLACE INTO followed VALUES (?, ?, ?)", (name, ref, commit))

    def names(self) -> list[str]:
        """All sources that were ever loaded, sorted."""
        return [name for (name,) in self._db.all("SELECT name FROM sources ORDER BY name")]
