"""The applied resources: what was last applied and last observed, for every resource and location."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any

import msgspec

from reconciler.errors import CorruptRowError
from reconciler.iteration import iterate_batches
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
"""The health of a resource is the worst of its locations."""

BATCH = 500
"""The number of keys per query."""

_HEALTH = {str(health): health for health in Health}
COLUMNS = "key, location, source, digest, body, version, engine, health, state, alias, revision, applied_at"
PUT = f"""INSERT INTO applied ({COLUMNS}, created)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12) ON CONFLICT (key, location)
    DO UPDATE SET source = excluded.source, digest = excluded.digest, body = excluded.body, version = excluded.version,
    engine = excluded.engine, health = excluded.health, state = excluded.state, alias = excluded.alias,
    revision = excluded.revision, applied_at = excluded.applied_at"""

_NO_BODIES = COLUMNS.replace("body", "x'7b7d'")

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

AppliedRow = tuple[str, str, str, str]
"""Key, location, digest and engine."""

VersionRow = tuple[str, str, int]
"""Key, digest and version."""


_AT_LOCATION = """FROM applied INDEXED BY applied_at_location
    WHERE location = ? AND engine = ? ORDER BY key"""


class Applied:
    """One row for each key and location; triggers count resources by source and health."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, key: AnyKey) -> tuple[Record, ...]:
        """The records of ``key``, in order of location; empty if it is not applied."""
        rows = self._db.all(f"SELECT {COLUMNS} FROM applied WHERE key = ? ORDER BY location", (str(key),))
        return tuple([_decode_record(row) for row in rows])

    def at(self, key: AnyKey, location: str) -> Record | None:
        """The record of ``key`` at ``location``; None if it is not applied there."""
        row = self._db.one(f"SELECT {COLUMNS} FROM applied WHERE key = ? AND location = ?", (str(key), location))
        return _decode_record(row) if row is not None else None

    def get_many(self, keys: Iterable[AnyKey], *, bodies: bool = True) -> dict[str, tuple[Record, ...]]:
        """The records of each of ``keys`` by the key's text; keys without records are omitted.

        Without ``bodies`` each body is ``{}``: for callers that need only the state of resources.
        """
        columns = COLUMNS if bodies else _NO_BODIES
        by_key: dict[str, tuple[Record, ...]] = {}
        # A first load looks up 100,000 keys, in 0.2 s, although there are no records yet.
        for batch in iterate_batches(map(str, keys), BATCH) if self._db.one("SELECT 1 FROM applied LIMIT 1") else ():
            rows = self._db.all(
                f"""SELECT {columns} FROM applied WHERE key IN (SELECT value FROM json_each(?))
                ORDER BY key, location""",
                (msgspec.json.encode(batch).decode(),),
            )
            for key, records in groupby(rows, key=lambda row: str(row[0])):
                by_key[key] = tuple([_decode_record(row) for row in records])
        return by_key

    def bodies(self, digests: Mapping[str, str]) -> dict[str, bytes]:
        """The bodies of the keys of ``digests``; keys that are not recorded with their digest are omitted."""
        rows = self._db.all(
            """SELECT applied.key, body FROM json_each(?) AS wanted CROSS JOIN applied
            ON applied.key = wanted.key AND applied.digest = wanted.value GROUP BY applied.key""",
            (msgspec.json.encode(digests).decode(),),
        )
        for key, body in rows:
            with stored_row("applied", key):
                _object(body)
        return dict(rows)

    def put(self, record: Record) -> None:
        """Write ``record``; replaces an earlier one of its key and location."""
        self._db.write(PUT, _encode_record(record))

    def put_many(self, records: Iterable[Record]) -> None:
        """``put`` for many records, all or none."""
        self._db.write_many(PUT, (_encode_record(record) for record in records))

    def update_seen(self, key: AnyKey, location: str, health: Health, state: bytes) -> None:
        """Record an engine's current observation; does nothing if there is no such record."""
        self._db.write(
            "UPDATE applied SET health = ?, state = ? WHERE key = ? AND location = ?",
            (str(health), state, str(key), location),
        )

    def remove(self, places: Iterable[tuple[str, str]]) -> None:
        """Remove the record of each key at its location."""
        self._db.write_many("DELETE FROM applied WHERE key = ? AND location = ?", places)

    def adopt(self, source: str, keys: Iterable[AnyKey]) -> list[tuple[str, str]]:
        """Transfer the records of ``keys`` to ``source``; returns each transferred key with its former source."""
        if self._db.one("SELECT 1 FROM tally WHERE source <> ? AND n > 0 LIMIT 1", (source,)) is None:
            return []
        asked = msgspec.json.encode([str(key) for key in keys]).decode()
        others = "WHERE source <> ? AND key IN (SELECT value FROM json_each(?))"
        adopted = self._db.all(f"SELECT DISTINCT key, source FROM applied {others} ORDER BY key", (source, asked))
        if adopted:
            self._db.write(f"UPDATE applied SET source = ? {others}", (source, source, asked))
        return [(str(key), str(owner)) for key, owner in adopted]

    def creation_times(self, keys: Iterable[AnyKey]) -> dict[str, float]:
        """When each of ``keys`` was first applied (seconds since the epoch); keys without records are omitted."""
        rows = self._db.all(
            "SELECT key, min(created) FROM applied WHERE key IN (SELECT value FROM json_each(?)) GROUP BY key",
            (msgspec.json.encode([str(key) for key in keys]).decode(),),
        )
        return {str(key): float(at) for key, at in rows}

    def created_at(self, key: AnyKey) -> float | None:
        """When ``key`` was first applied (seconds since the epoch), None if it has no records."""
        at: float | None = self._db.value("SELECT min(created) FROM applied WHERE key = ?", (str(key),))
        return at

    def keys_after(self, prefix: str, after: str, limit: int) -> list[str]:
        """At most ``limit`` keys that begin with ``prefix`` and follow ``after`` ("": from the first), in order."""
        low, high = prefix_range(prefix)
        # With two lower bounds, SQLite would search by one of them and read every row up to the other.
        first = "key > ?" if after >= low else "key >= ?"
        sql = f"SELECT key FROM inventory WHERE {first} AND key < ? ORDER BY key LIMIT ?"
        return [str(key) for (key,) in self._db.all(sql, (max(low, after), high, limit))]

    def search_keys(self, prefix: str, text: str, healths: Collection[Health], after: str, limit: int) -> list[str]:
        """At most ``limit`` keys after ``after`` that begin with ``prefix`` and contain ``text``, in order.

        The resources have one of ``healths``, the worst of their locations; none: any.
        """
        low, high = prefix_range(prefix)
        first = "key > ?" if after >= low else "key >= ?"
        sql = f"""SELECT key FROM inventory WHERE {first} AND key < ? AND instr(key, ?)
            AND (? OR health IN (SELECT value FROM json_each(?))) ORDER BY key LIMIT ?"""
        names = msgspec.json.encode(sorted(healths)).decode()
        rows = self._db.all(sql, (max(low, after), high, text, not healths, names, limit))
        return [str(key) for (key,) in rows]

    def pick_keys(self, keys: Collection[str], text: str, healths: Collection[Health]) -> list[str]:
        """Those of ``keys`` that are recorded and contain ``text``, in order; ``healths`` as of ``search_keys``."""
        sql = """SELECT key FROM inventory WHERE key IN (SELECT value FROM json_each(?)) AND instr(key, ?)
            AND (? OR health IN (SELECT value FROM json_each(?))) ORDER BY key"""
        wanted, names = (msgspec.json.encode(sorted(values)).decode() for values in (keys, healths))
        return [str(key) for (key,) in self._db.all(sql, (wanted, text, not healths, names))]

    def exists(self, key: AnyKey) -> bool:
        """Whether ``key`` is recorded at any location."""
        return self._db.one("SELECT 1 FROM inventory WHERE key = ?", (str(key),)) is not None

    def scan(self, source: str | None = None) -> Iterator[AppliedRow]:
        """All records, or those of one source, in order of key and location; reads no bodies."""
        sql = "SELECT key, location, digest, engine FROM applied INDEXED BY applied_scan"
        if source is None:
            return self._db.stream(f"{sql} ORDER BY key, location")
        return self._db.stream(f"{sql} WHERE source = ? ORDER BY key, location", (source,))

    def first_workloads(self, source: str, limit: int) -> list[str]:
        """The keys of at most ``limit`` workloads of ``source``, in order."""
        rows = self._db.all(
            """SELECT DISTINCT key FROM applied INDEXED BY applied_scan WHERE key >= ? AND key < ? AND source = ?
            ORDER BY key LIMIT ?""",
            (*prefix_range(f"{Kind.WORKLOAD}/"), source, limit),
        )
        return [str(key) for (key,) in rows]

    def scan_at(self, location: str, engine: str) -> Iterator[VersionRow]:
        """All records of ``engine`` at ``location``, in key order; reads no bodies."""
        return self._db.stream(f"SELECT key, digest, version {_AT_LOCATION}", (location, engine))

    def items_at(self, location: str, engine: str) -> Iterator[Record]:
        """All records of ``engine`` at ``location``, in key order."""
        return map(_decode_record, self._db.stream(f"SELECT {COLUMNS} {_AT_LOCATION}", (location, engine)))

    def is_unknown(self, location: str) -> bool:
        """Whether nothing is known of what runs at ``location``, and something does."""
        sql = """SELECT count(*), sum(health <> ?) FROM applied INDEXED BY applied_at_location
            WHERE location = ? AND state <> ?"""
        row = self._db.one(sql, (str(Health.UNKNOWN), location, b"{}"))
        return row is not None and row[0] > 0 and not row[1]

    def crons_at(self, location: str, engine: str) -> list[str]:
        """The keys of workloads of ``engine`` at ``location`` whose bodies contain the word ``cron`` as a value."""
        rows = self._db.all(
            """SELECT key FROM applied INDEXED BY applied_at_location WHERE location = ? AND engine = ?
            AND key >= ? AND key < ? AND instr(body, CAST('"cron"' AS BLOB)) ORDER BY key""",
            (location, engine, *prefix_range(f"{Kind.WORKLOAD}/")),
        )
        return [str(key) for (key,) in rows]

    def keys_with_state(self, kind: Kind) -> list[str]:
        """Keys of the resources of ``kind`` about which an engine has reported anything, in key order."""
        sql = "SELECT DISTINCT key FROM applied WHERE key >= ? AND key < ? AND state <> ? ORDER BY key"
        return [str(key) for (key,) in self._db.all(sql, (*prefix_range(f"{kind}/"), b"{}"))]

    def gvcs_with_location_query(self) -> list[str]:
        """The keys of GVCs whose bodies contain the word ``locationQuery``, which may be a value too."""
        rows = self._db.all(
            """SELECT key FROM applied WHERE key >= ? AND key < ? AND instr(body, CAST('"locationQuery"' AS BLOB))
            ORDER BY key""",
            prefix_range(f"{Kind.GVC}/"),
        )
        return [str(key) for (key,) in rows]

    def inventory(self, source: str) -> int:
        """The number of keys that the source owns; the cost does not depend on the number."""
        return int(self._db.value("SELECT sum(n) FROM tally WHERE source = ?", (source,)) or 0)

    def counts(self, source: str | None = None) -> dict[tuple[Kind, Health], int]:
        """The number of resources (not locations) by kind and worst health, of all sources or of one."""
        rows = self._db.all(
            """SELECT kind, health, sum(n) FROM tally WHERE ?1 IS NULL OR source = ?1
            GROUP BY kind, health HAVING sum(n) > 0 ORDER BY kind, health""",
            (source,),
        )
        with stored_row("inventory", "kind and health"):
            return {(KINDS[kind], _HEALTH[health]): number for kind, health, number in rows}

    def count_members(self, gvc: str) -> dict[Kind, tuple[int, int]]:
        """For each kind, the number of resources in ``gvc``, and of those with a health that is not good.

        It reads each key: sums over a range cost a fifth of groups, which SQLite sorts.
        """
        sql = """SELECT count(*), coalesce(sum(health NOT IN (SELECT value FROM json_each(?))), 0)
            FROM inventory WHERE key >= ? AND key < ?"""
        good = msgspec.json.encode(sorted(health for health in Health if health.is_good)).decode()
        rows = {kind: self._db.one(sql, (good, *prefix_range(f"{kind}/{gvc}/"))) for kind in sorted(GVC_SCOPED)}
        return {kind: (row[0], row[1]) for kind, row in rows.items() if row is not None}

    def keys_of_gvc(self, gvc: str) -> list[str]:
        """Keys of the recorded workloads, volume sets and identities in ``gvc``, in key order."""
        sql = "SELECT key FROM inventory WHERE key >= ? AND key < ? ORDER BY key"
        return [key for bounds in gvc_ranges(gvc) for (key,) in self._db.all(sql, bounds)]

    def member_healths(self, gvc: str) -> tuple[Health, ...]:
        """Each health that any of the resources in ``gvc`` has, the worst of its locations."""
        sql = "SELECT DISTINCT health FROM inventory WHERE key >= ? AND key < ?"
        names = {str(health) for bounds in gvc_ranges(gvc) for (health,) in self._db.all(sql, bounds)}
        with stored_row("inventory", f"gvc/{gvc}"):
            return tuple(_HEALTH[health] for health in sorted(names))

    def items(
        self, kind: Kind | None = None, gvc: str | None = None, name: str | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """The records that match all arguments, in order of key and location; at most ``limit``."""
        return islice(self._matching(kind, gvc, name), limit)

    def _matching(self, kind: Kind | None, gvc: str | None, name: str | None) -> Iterator[Record]:
        sql = f"SELECT {COLUMNS} FROM applied WHERE key >= ? AND key < ? AND substr(key, ?) = ? ORDER BY key, location"
        # A negative substr position counts from the end; from 2^31 on the result is "".
        ending = (1 << 31, "") if name is None else (-len(name) - 1, f"/{name}")
        for one in sorted(Kind) if kind is None else (kind,):
            if gvc is not None and one not in GVC_SCOPED:
                continue
            prefix = f"{one}/" if gvc is None else f"{one}/{gvc}/"
            for row in self._db.stream(sql, (*prefix_range(prefix), *ending)):
                yield _decode_record(row)


def _encode_record(record: Record) -> tuple[Any, ...]:
    key, *rest = msgspec.structs.astuple(record)
    return (str(key), *rest)


def _decode_record(row: tuple[Any, ...]) -> Record:
    try:
        # Later readers rely on these being JSON objects.
        _object(row[4]), _object(row[8])
        values = (Key.parse(row[0]), *row[1:7], _HEALTH[row[7]], *row[8:])
        return Record(*values)
    except UNPARSABLE as error:
        raise CorruptRowError("applied", row[0]) from error
