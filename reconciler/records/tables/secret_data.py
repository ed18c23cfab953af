"""The data of secrets, separate from every body: no other table contains any."""

from __future__ import annotations

from reconciler.records.database import Database
from reconciler.records.sql import AnyKey


class SecretData:
    """One row for each key and digest, so that applied and desired data can differ."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, key: AnyKey, digest: str, content: bytes) -> None:
        """Store the data of the secret ``key`` whose body has ``digest``."""
        with self._db.overwriting():
            self._db.write("INSERT OR REPLACE INTO secret_data VALUES (?, ?, ?)", (str(key), digest, content))

    def get(self, key: AnyKey, digest: str) -> bytes | None:
        """The data of the secret ``key`` whose body has ``digest``, None if it is not stored."""
        sql = "SELECT data FROM secret_data WHERE key = ? AND digest = ?"
        content: bytes | None = self._db.value(sql, (str(key), digest))
        return content

    def missing(self, source: str) -> list[str]:
        """Keys of secrets that ``source`` wants and whose data is not stored but decrypted, or read, on demand."""
        # The plus prevents SQLite from using the index by source, which would scan all resources of the source.
        rows = self._db.all(
            """SELECT key FROM desired d WHERE key >= 'secret/' AND key < 'secret0' AND +source = ? AND
            NOT EXISTS (SELECT 1 FROM secret_data s WHERE s.key = d.key AND s.digest = d.digest) ORDER BY key""",
            (source,),
        )
        return [key for (key,) in rows]

    def sweep(self) -> int:
        """Drop data that is neither desired nor applied; returns the number of dropped rows."""
        with self._db.dropping_secrets():
            return self._db.write(
                """DELETE FROM secret_data AS s WHERE
                NOT EXISTS (SELECT 1 FROM desired d WHERE d.key = s.key AND d.digest = s.digest) AND
                NOT EXISTS (SELECT 1 FROM applied a WHERE a.key = s.key AND a.digest = s.digest)"""
            ).rowcount
