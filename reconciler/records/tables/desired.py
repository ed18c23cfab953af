"""The index of desired resources: what the last good revision of each source contains, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from reconciler.errors import CorruptRowError
from reconciler.iteration import iterate_batches
from reconciler.model.key import Kind
from reconciler.model.resource import Dependency, Reference
from reconciler.records.database import Database
from reconciler.records.sql import UNPARSABLE, AnyKey, gvc_ranges, prefix_range

COLUMNS = "key, source, path, position, line, blob, digest, links"

PUT = """INSERT INTO desired (key, source, path, position, line, blob, digest, directory, is_gvc, links)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET source = excluded.source, path = excluded.path,
    position = excluded.position, line = excluded.line, blob = excluded.blob, digest = excluded.digest,
    directory = excluded.directory, links = excluded.links"""

EDIT = "UPDATE desired SET position = ?, line = ?, blob = ?, digest = ?, links = ? WHERE key = ?"

BATCH = 1000
"""Entries written at once: enough to save time, few enough that 100,000 are never in memory together."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, Dependency]]).decode


class DesiredEntry(msgspec.Struct, frozen=True, gc=False):
    """The place of a desired resource in Git (``path``, ``line``, ``position``, ``blob``), and its references."""

    key: str
    source: str
    path: str
    position: int
    line: int
    blob: str
    digest: str
    references: tuple[Reference, ...] = ()


class Desired:
    """One row for each key. Key order is the order of the keys' text, here and in the applied records."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, key: AnyKey) -> DesiredEntry | None:
        """The entry of ``key`` with its references, None if it is not desired."""
        row = self._db.one(f"SELECT {COLUMNS} FROM desired WHERE key = ?", (str(key),))
        return None if row is None else _decode_entry(row)

    def get_many(self, keys: Iterable[AnyKey]) -> dict[str, DesiredEntry]:
        """The entries of ``keys`` by the key's text; keys that are not desired are omitted."""
        sql = f"SELECT {COLUMNS} FROM desired WHERE key IN (SELECT value FROM json_each(?))"
        asked = msgspec.json.encode([str(key) for key in keys]).decode()
        return {row[0]: _decode_entry(row) for row in self._db.all(sql, (asked,))}

    def at_paths(self, source: str, paths: Iterable[str]) -> list[DesiredEntry]:
        """The entries from the files at ``paths``, in order of path and position."""
        asked = msgspec.json.encode(list(paths)).decode()
        rows = self._db.all(
            f"""SELECT {COLUMNS} FROM desired WHERE source = ? AND path IN (SELECT value FROM json_each(?))
            ORDER BY path, position""",
            (source, asked),
        )
        return [_decode_entry(row) for row in rows]

    def referrers(self, target: AnyKey, kind: str = "") -> list[str]:
        """Keys of all resources (or of all of ``kind``) that refer to ``target``, by any type of reference, in key
        order."""
        sql = "SELECT key FROM referrers WHERE target = ?"
        if kind:
            first, end = prefix_range(f"{kind}/")
            rows = self._db.all(f"{sql} AND key >= ? AND key < ? ORDER BY key", (str(target), first, end))
        else:
            rows = self._db.all(f"{sql} ORDER BY key", (str(target),))
        return [key for (key,) in rows]

    def referrers_of_any(self, targets: Iterable[AnyKey]) -> list[str]:
        """Keys of all resources that refer to any of ``targets``, in key order."""
        sql = "SELECT DISTINCT key FROM referrers WHERE target IN (SELECT value FROM json_each(?)) ORDER BY key"
        asked = msgspec.json.encode([str(target) for target in targets]).decode()
        return [key for (key,) in self._db.all(sql, (asked,))]

    def select_referred(self, targets: Iterable[AnyKey]) -> set[str]:
        """Those of ``targets`` to which any resource refers."""
        asked = msgspec.json.encode([str(target) for target in targets]).decode()
        sql = """SELECT value FROM json_each(?) AS wanted
            WHERE EXISTS (SELECT 1 FROM referrers WHERE target = wanted.value)"""
        return {str(target) for (target,) in self._db.all(sql, (asked,))}

    def referrers_by_target(self, targets: Iterable[AnyKey], kind: str) -> dict[str, list[str]]:
        """``referrers`` of each of ``targets`` that has any."""
        asked = msgspec.json.encode([str(target) for target in targets]).decode()
        rows = self._db.all(
            """SELECT target, key FROM referrers WHERE target IN (SELECT value FROM json_each(?))
            AND key >= ? AND key < ? ORDER BY target, key""",
            (asked, *prefix_range(f"{kind}/")),
        )
        referrers: dict[str, list[str]] = {}
        for target, key in rows:
            referrers.setdefault(target, []).append(key)
        return referrers

    def references(self, key: AnyKey) -> tuple[Reference, ...]:
        """The references of ``key``; empty if it is unknown."""
        packed = self._db.value("SELECT links FROM desired WHERE key = ?", (str(key),))
        return () if packed is None else _unpack_references(packed)

    def gvcs_in(self, source: str, directory: str) -> list[str]:
        """Names of the GVCs defined directly in ``directory`` (``""``: the root), sorted."""
        rows = self._db.all(
            "SELECT key FROM desired WHERE source = ? AND directory = ? AND is_gvc ORDER BY key", (source, directory)
        )
        return [str(key).partition("/")[2] for (key,) in rows]

    def paths_below(self, source: str, directory: str) -> list[str]:
        """Files in ``directory`` or below (``""``: all) that define any resource, sorted."""
        sql = "SELECT DISTINCT path FROM desired WHERE source = ?"
        if not directory:
            return [path for (path,) in self._db.all(f"{sql} ORDER BY path", (source,))]
        first, end = prefix_range(f"{directory}/")
        rows = self._db.all(f"{sql} AND path >= ? AND path < ? ORDER BY path", (source, first, end))
        return [path for (path,) in rows]

    def replace(self, source: str, removed: Iterable[str], added: Iterable[DesiredEntry]) -> None:
        """Remove the keys ``removed``, then insert or replace the entries ``added``, all or nothing.

        A key that now belongs to another source is not removed.
        """
        with self._db.transaction():
            gone = [(key, source) for key in removed if self._source_of(key) == source]
            self._unlink(key for key, _ in gone)
            self._db.write_many("DELETE FROM desired WHERE key = ? AND source = ?", gone)
            for batch in iterate_batches(added, BATCH):
                self._put({entry.key: entry for entry in batch})

    def scan(self, source: str | None = None) -> Iterator[tuple[str, str]]:
        """(key, digest) of all, or of one source, in key order, without holding them in memory."""
        if source is None:
            return self._db.stream("SELECT key, digest FROM desired ORDER BY key")
        # The plus prevents SQLite from using the index by source, which would require a sort.
        return self._db.stream("SELECT key, digest FROM desired WHERE +source = ? ORDER BY key", (source,))

    def count(self, source: str) -> int:
        """The number of resources that the source wants; the cost does not depend on the number."""
        return int(self._db.value("SELECT n FROM desired_tally WHERE source = ?", (source,)) or 0)

    def empty(self) -> bool:
        """Whether no source wants any resource."""
        return self._db.one("SELECT 1 FROM desired LIMIT 1") is None

    def keys_of_gvc(self, gvc: str) -> list[str]:
        """Keys of the workloads, volume sets and identities in ``gvc``, in key order."""
        sql = "SELECT key FROM desired WHERE key >= ? AND key < ? ORDER BY key"
        return [key for bounds in gvc_ranges(gvc) for (key,) in self._db.all(sql, bounds)]

    def keys_of_kind(self, kind: str, limit: int = -1) -> list[str]:
        """Keys of the resources of ``kind``, in key order; at most ``limit`` (-1: all)."""
        sql = "SELECT key FROM desired WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._db.all(sql, (*prefix_range(f"{kind}/"), limit))]

    def gvcs_of(self, source: str) -> list[str]:
        """Keys of the GVCs that ``source`` declares, in key order."""
        sql = "SELECT key FROM desired WHERE source = ? AND is_gvc ORDER BY key"
        return [key for (key,) in self._db.all(sql, (source,))]

    def not_applied(self, kind: str) -> list[str]:
        """Keys of the resources of ``kind`` that no record has as they are desired, in key order."""
        rows = self._db.all(
            """SELECT key FROM desired WHERE key IN (SELECT key FROM behind WHERE key >= ? AND key < ?) AND NOT EXISTS
            (SELECT 1 FROM applied WHERE applied.key = desired.key AND applied.digest = desired.digest) ORDER BY key""",
            prefix_range(f"{kind}/"),
        )
        return [key for (key,) in rows]

    def _source_of(self, key: str) -> str | None:
        source: str | None = self._db.value("SELECT source FROM desired WHERE key = ?", (key,))
        return source

    def _put(self, entries: dict[str, DesiredEntry]) -> None:
        """Write only differences: every unchanged index entry is a page less to sync."""
        many = self.get_many(entries)
        stay = [
            entry
            for key, entry in entries.items()
            if key in many and _get_entry_home(many[key]) == _get_entry_home(entry)
        ]
        come = [
            entry
            for key, entry in entries.items()
            if key not in many or _get_entry_home(many[key]) != _get_entry_home(entry)
        ]
        self._db.write_many(PUT, [_encode_entry(entry) for entry in come])
        self._db.write_many(EDIT, [(e.position, e.line, e.blob, e.digest, _pack_references(e), e.key) for e in stay])
        before, after = _collect_links(many.values()), _collect_links(entries.values())
        self._db.write_many("DELETE FROM referrers WHERE target = ? AND key = ?", sorted(before - after))
        self._db.write_many("INSERT INTO referrers VALUES (?, ?)", sorted(after - before))

    def _unlink(self, keys: Iterable[str]) -> None:
        links = {(reference.target, key) for key in keys for reference in self.references(key)}
        self._db.write_many("DELETE FROM referrers WHERE target = ? AND key = ?", sorted(links))


def _encode_entry(entry: DesiredEntry) -> tuple[Any, ...]:
    directory = entry.path.rpartition("/")[0]
    return (
        *msgspec.structs.astuple(entry)[:-1],
        directory,
        entry.key.startswith(f"{Kind.GVC}/"),
        _pack_references(entry),
    )


def _pack_references(entry: DesiredEntry) -> bytes:
    return _encode([(reference.target, reference.pointer, reference.bond) for reference in entry.references])


def _get_entry_home(entry: DesiredEntry) -> tuple[str, str]:
    return entry.source, entry.path


def _collect_links(entries: Iterable[DesiredEntry]) -> set[tuple[str, str]]:
    return {(reference.target, entry.key) for entry in entries for reference in entry.references}


def _unpack_references(packed: bytes) -> tuple[Reference, ...]:
    try:
        return tuple([Reference(*link) for link in _decode(packed)])
    except UNPARSABLE as error:
        raise CorruptRowError("desired", "links") from error


def _decode_entry(row: tuple[Any, ...]) -> DesiredEntry:
    values = (*row[:-1], _unpack_references(row[-1]))
    return DesiredEntry(*values)
