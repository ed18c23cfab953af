"""The records proper: what was last applied, and last seen, of every resource at every location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

import msgspec

from reconciler.errors import CorruptRowError
from reconciler.iteration import batches
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.record import Health, Record
from reconciler.records.database import Database
from reconciler.records.sql import UNPARSABLE, AnyKey, gvc_ranges, prefix_range, stored_row

WORST_FIRST = (
    Health.UNHEALTHY,
    Health.UNKNOWN,
    Health.LOADING,
    Health.DELETING,
    Health.RECORDED,
    Health.HEALTHY,
)
"""A resource is as healthy as the worst of its locations."""

BATCH = 500
"""Keys looked up at once."""

_HEALTH = {str(health): health for health in Health}
COLUMNS = "key, location, source, digest, body, version, engine, health, state, alias, revision, applied_at"
PUT = f"""INSERT INTO applied ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key, location)
    DO UPDATE SET source = excluded.source, digest = excluded.digest, body = excluded.body, version = excluded.version,
    engine = excluded.engine, health = excluded.health, state = excluded.state, alias = excluded.alias,
    revision = excluded.revision, applied_at = excluded.applied_at"""

_NO_BODIES = COLUMNS.replace("body", "x'7b7d'")

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Applied:
    """One row a key and location; what a source owns and how healthy it is, is counted along."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, key: AnyKey) -> tuple[Record, ...]:
        """The records of ``key``, in order of location; empty where nothing is applied."""
        rows = self._db.all(f"SELECT {COLUMNS} FROM applied WHERE key = ? ORDER BY location", (str(key),))
        return tuple([_record(row) for row in rows])

    def get_many(self, keys: Iterable[AnyKey], *, bodies: bool = True) -> dict[str, tuple[Record, ...]]:
        """The records of each of ``keys`` by the key's text; one without records is left out.

        Without ``bodies`` each body is ``{}``: for those who ask how resources are, not what they are.
        """
        columns = COLUMNS if bodies else _NO_BODIES
        found: dict[str, tuple[Record, ...]] = {}
        # A first load asks for 100,000 keys, in 0.2 s, where nothing is recorded at all.
        for batch in batches(map(str, keys), BATCH) if self._db.one("SELECT 1 FROM applied LIMIT 1") else ():
            rows = self._db.all(
                f"""SELECT {columns} FROM applied WHERE key IN (SELECT value FROM json_each(?))
                ORDER BY key, location""",
                (msgspec.json.encode(batch).decode(),),
            )
            for key, records in groupby(rows, key=lambda row: str(row[0])):
                found[key] = tuple([_record(row) for row in records])
        return found

    def put(self, record: Record) -> None:
        """Record ``record`` in the place of what was there for its key and location."""
        self._db.write(PUT, _row(record))

    def put_many(self, records: Iterable[Record]) -> None:
        """``put`` for many, all or none."""
        self._db.write_many(PUT, (_row(record) for record in records))

    def update_seen(self, key: AnyKey, location: str, health: Health, state: bytes) -> None:
        """Note what an engine sees now; nothing happens where there is no such record."""
        self._db.write(
            "UPDATE applied SET health = ?, state = ? WHERE key = ? AND location = ?",
            (str(health), state, str(key), location),
        )

    def remove(self, key: AnyKey, location: str | None = None) -> None:
        """Take out the record of ``key`` at ``location``, or (None) at every location."""
        if location is None:
            self._db.write("DELETE FROM applied WHERE key = ?", (str(key),))
        else:
            self._db.write("DELETE FROM applied WHERE key = ? AND location = ?", (str(key), location))

    def adopt(self, source: str, keys: Iterable[AnyKey]) -> list[tuple[str, str]]:
        """Make the records of ``keys`` those of ``source``; each key that was another's, with whose it was."""
        if self._db.one("SELECT 1 FROM tally WHERE source <> ? AND n > 0 LIMIT 1", (source,)) is None:
            return []
        asked = msgspec.json.encode([str(key) for key in keys]).decode()
        others = "WHERE source <> ? AND key IN (SELECT value FROM json_each(?))"
        found = self._db.all(f"SELECT DISTINCT key, source FROM applied {others} ORDER BY key", (source, asked))
        if found:
            self._db.write(f"UPDATE applied SET source = ? {others}", (source, source, asked))
        return [(str(key), str(owner)) for key, owner in found]

    def exists(self, key: AnyKey) -> bool:
        """Whether ``key`` is recorded at any location."""
        return self._db.one("SELECT 1 FROM inventory WHERE key = ?", (str(key),)) is not None

    def scan(self, source: str | None = None) -> Iterator[tuple[str, str, str, str]]:
        """(key, location, digest, engine) of all, or of one source, in order of key and location; reads no bodies."""
        sql = "SELECT key, location, digest, engine FROM applied INDEXED BY applied_scan"
        if source is None:
            return self._db.stream(f"{sql} ORDER BY key, location")
        return self._db.stream(f"{sql} WHERE source = ? ORDER BY key, location", (source,))

    def scan_at(self, location: str, engine: str) -> Iterator[tuple[str, str, int]]:
        """(key, digest, version) of all that ``engine`` has at ``location``, in order of key; reads no bodies."""
        sql = "SELECT key, digest, version FROM applied INDEXED BY applied_scan WHERE location = ? AND engine = ?"
        return self._db.stream(f"{sql} ORDER BY key", (location, engine))

    def inventory(self, source: str) -> int:
        """How many keys the source owns; costs the same however many they are."""
        return int(self._db.value("SELECT sum(n) FROM tally WHERE source = ?", (source,)) or 0)

    def counts(self, source: str | None = None) -> dict[tuple[Kind, Health], int]:
        """How many resources (not locations) there are by kind and worst health, of all sources or of one."""
        rows = self._db.all(
            """SELECT kind, health, sum(n) FROM tally WHERE ?1 IS NULL OR source = ?1
            GROUP BY kind, health HAVING sum(n) > 0 ORDER BY kind, health""",
            (source,),
        )
        with stored_row("inventory", "kind and health"):
            return {(KINDS[kind], _HEALTH[health]): number for kind, health, number in rows}

    def keys_of_gvc(self, gvc: str) -> list[str]:
        """Keys of the recorded workloads, volume sets and identities in ``gvc``, in key order."""
        sql = "SELECT key FROM inventory WHERE key >= ? AND key < ? ORDER BY key"
        return [key for bounds in gvc_ranges(gvc) for (key,) in self._db.all(sql, bounds)]

    def items(
        self, kind: Kind | None = None, gvc: str | None = None, name: str | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """Records that match all that is given, in order of key and location, ``limit`` of them at most."""
        return islice(self._matching(kind, gvc, name), limit)

    def _matching(self, kind: Kind | None, gvc: str | None, name: str | None) -> Iterator[Record]:
        sql = f"SELECT {COLUMNS} FROM applied WHERE key >= ? AND key < ? AND substr(key, ?) = ? ORDER BY key, location"
        # substr counts from the end where negative; from 2^31 there is nothing left, which equals "".
        ending = (1 << 31, "") if name is None else (-len(name) - 1, f"/{name}")
        for one in sorted(Kind) if kind is None else (kind,):
            if gvc is not None and one not in GVC_SCOPED:
                continue
            prefix = f"{one}/" if gvc is None else f"{one}/{gvc}/"
            for row in self._db.stream(sql, (*prefix_range(prefix), *ending)):
                yield _record(row)


def _row(record: Record) -> tuple[Any, ...]:
    key, *rest = msgspec.structs.astuple(record)
    return (str(key), *rest)


def _record(row: tuple[Any, ...]) -> Record:
    try:
        # Whoever reads these later takes them for JSON objects.
        _object(row[4]), _object(row[8])
        return Record(*(Key.parse(row[0]), *row[1:7], _HEALTH[row[7]], *row[8:]))
    except UNPARSABLE as error:
        raise CorruptRowError("applied", row[0]) from error
