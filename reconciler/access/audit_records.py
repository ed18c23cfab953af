"""The records of audit contexts, which programs append: each context is a chain of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from reconciler.access.hash_chain import START, ChainLink, broken_links, compute_chain_hash
from reconciler.records.database import Database


class AuditRecord(msgspec.Struct, frozen=True):
    """What a program did, as it states it, and who stated it: ``at`` is seconds since the epoch."""

    at: float
    principal: str
    credential: str
    address: str
    request_id: str
    action: str
    target: str
    outcome: str
    details: dict[str, Any]


class AuditRecordRow(NamedTuple):
    """A record with its number in the context, and the hash that chains it to the one before."""

    number: int
    record: AuditRecord
    hash: str


class AuditRecords:
    """Records by context. They are never changed or deleted. Methods raise RecordsError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def append(self, context: str, record: AuditRecord) -> AuditRecordRow:
        """Append ``record`` to ``context``; its hash covers the hash of the one before."""
        content = msgspec.json.encode(record)
        with self._db.transaction():
            sql = "SELECT number, hash FROM audit_records WHERE context = ? ORDER BY number DESC LIMIT 1"
            number, last = self._db.one(sql, (context,)) or (0, START)
            link = compute_chain_hash(last, content)
            self._db.write("INSERT INTO audit_records VALUES (?, ?, ?, ?)", (context, number + 1, content, link))
        return AuditRecordRow(number + 1, record, link.hex())

    def list(self, context: str, after: int, limit: int) -> list[AuditRecordRow]:
        """At most ``limit`` records of ``context`` after the number ``after``, in order."""
        sql = "SELECT number, record, hash FROM audit_records WHERE context = ? AND number > ? ORDER BY number LIMIT ?"
        rows = self._db.all(sql, (context, after, limit))
        return [AuditRecordRow(row[0], msgspec.json.decode(row[1], type=AuditRecord), row[2].hex()) for row in rows]

    def has_any(self, context: str) -> bool:
        """Whether ``context`` has a record."""
        return self._db.one("SELECT 1 FROM audit_records WHERE context = ? LIMIT 1", (context,)) is not None

    def contexts(self) -> tuple[str, ...]:
        """The contexts that have records, by name."""
        return tuple(row[0] for row in self._db.all("SELECT DISTINCT context FROM audit_records ORDER BY context"))

    def find_broken(self, context: str) -> Iterator[int]:
        """Numbers of records that do not follow from those before: changed, inserted, or after a removed one."""
        sql = "SELECT number, record, hash FROM audit_records WHERE context = ? ORDER BY number"
        return broken_links(ChainLink(*row) for row in self._db.stream(sql, (context,)))
