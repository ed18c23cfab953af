"""The cache of parsed documents by blob id, so that a restart parses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.records.database import Database
from reconciler.records.slices import delete_in_slices


class DocumentCache:
    """Maps a blob id to the decoder's bytes for the file; contains no secrets (those are in ``secret_data``).

    The id may have a suffix after a #, for another form of the same file.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._usable = True
        self._sweep_due = False

    def get_many(self, oids: Iterable[str]) -> dict[str, bytes]:
        """The cached bytes of ``oids``; missing ones are omitted."""
        if not self._usable or self._is_empty():
            return {}
        asked = msgspec.json.encode(list(oids)).decode()
        return dict(
            self._db.all("SELECT oid, parsed FROM blobs WHERE oid IN (SELECT value FROM json_each(?))", (asked,))
        )

    def get(self, oid: str) -> bytes | None:
        """The cached bytes of ``oid``, None if there are none."""
        parsed: bytes | None = (
            self._db.value("SELECT parsed FROM blobs WHERE oid = ?", (oid,)) if self._usable else None
        )
        return parsed

    def put_many(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """Cache (blob id, bytes) pairs in order of id: that walks the index once, which halves the cost."""
        with self._db.repeatable():
            self._db.write_many("INSERT OR REPLACE INTO blobs (oid, parsed) VALUES (?, ?)", sorted(pairs))

    def use(self, decoder: str, *, keep: bool) -> None:
        """Use only entries of this ``decoder`` version; ``keep`` drops all others for good."""
        self._usable = self._db.value("SELECT value FROM meta WHERE name = 'decoder'") == decoder
        if self._usable or not keep:
            return
        self._usable = True
        with self._db.transaction():
            self._db.write("DELETE FROM blobs")
            self._db.write("INSERT OR REPLACE INTO meta VALUES ('decoder', ?)", (decoder,))

    def _is_empty(self) -> bool:
        """Avoids the lookup of 100,000 ids before a first load."""
        return self._db.one("SELECT 1 FROM blobs LIMIT 1") is None

    def request_sweep(self) -> None:
        """Make a ``sweep`` due."""
        self._sweep_due = True

    def needs_sweep(self) -> bool:
        """Whether a ``sweep`` is due."""
        return self._sweep_due

    def sweep(self) -> int:
        """Drop entries that no desired resource uses; returns their number. From any thread, as a checkpoint."""
        self._sweep_due = False
        return delete_in_slices(
            self._db,
            "SELECT oid FROM blobs WHERE substr(oid, 1, instr(oid || '#', '#') - 1) NOT IN (SELECT blob FROM desired)",
            "DELETE FROM blobs WHERE oid = ?",
        )
