"""Requests of operators to the daemon, and restarts: rows that any command may write, with or without a daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from reconciler.clock import SystemClock
from reconciler.records.database import Database
from reconciler.records.migrations import schema_versions
from reconciler.records.sql import AnyKey, Expiry, stored_row, time_of, time_parameters

KEEP = 1000
"""The number of completed requests that are remembered."""

PLAN = "plan"
"""The kind of a request for plans. A command that ends early leaves its row, with an answer of up to a megabyte."""
TAKE_STATUS_BRANCH = "takeStatusBranch"
"""An argument of a request for a run: the status replaces that of another daemon on its branch."""
KEEP_PLAN_SECONDS = 300.0

COLUMNS = 'id, kind, args, "by", at, started, done, result'


class Request(msgspec.Struct, frozen=True):
    """One request; ``started``, ``done`` and ``result`` are None until then. Times are seconds since the epoch."""

    id: int
    kind: str
    args: dict[str, Any]
    by: str
    at: float
    started: float | None
    done: float | None
    result: dict[str, Any] | None


class Requests:
    """Requests in the order of arrival. One that was started and not done because of a crash is open again."""

    def __init__(self, database: Database, now: Callable[[], float], expiry: Expiry) -> None:
        self._db = database
        self._now = now
        self._expiry = expiry

    def add(self, kind: str, args: Mapping[str, Any], by: str) -> int:
        """Add a request of ``kind``; ``args`` must be JSON. Returns its number."""
        with self._db.transaction():
            cursor = self._db.write(
                'INSERT INTO requests (kind, args, "by", at) VALUES (?, ?, ?, ?)',
                (kind, msgspec.json.encode(dict(args)), by, self._now()),
            )
            number = int(cursor.lastrowid or 0)
            self._db.write("DELETE FROM requests WHERE done IS NOT NULL AND id <= ?", (number - KEEP,))
            self._db.write(
                f"DELETE FROM requests WHERE kind = ? AND at + ? < {time_of('at')}",
                (PLAN, KEEP_PLAN_SECONDS, *time_parameters(self._expiry())),
            )
        return number

    def remove(self, number: int) -> None:
        """Forget a request: its answer was read, or is no longer wanted."""
        self._db.write("DELETE FROM requests WHERE id = ?", (number,))

    def open(self) -> list[Request]:
        """The open requests, oldest first."""
        return [
            _decode_request(row)
            for row in self._db.all(f"SELECT {COLUMNS} FROM requests WHERE done IS NULL ORDER BY id")
        ]

    def start(self, number: int) -> bool:
        """Record that work on it begins; False if nobody waits for the answer any more."""
        started = self._db.write("UPDATE requests SET started = ? WHERE id = ?", (self._now(), number))
        return started.rowcount > 0

    def record_result(self, number: int, result: Mapping[str, Any]) -> None:
        """Record the result of a request, which must be JSON."""
        self._db.write(
            "UPDATE requests SET done = ?, result = ? WHERE id = ?",
            (self._now(), msgspec.json.encode(dict(result)), number),
        )

    def get(self, number: int) -> Request | None:
        """One request, None if it never existed or was done long ago."""
        row = self._db.one(f"SELECT {COLUMNS} FROM requests WHERE id = ?", (number,))
        return None if row is None else _decode_request(row)


@contextmanager
def requests_table(path: Path, patience: float) -> Iterator[Requests]:
    """The requests alone, for a command that needs no other table of the records at ``path``.

    A write waits ``patience`` seconds for other writers. Raises RecordsError if the records cannot be written, or are
    of an earlier version: only the daemon and `reconciler apply` bring them up to date.
    """
    Database.open(path, schema_versions(), read_only=True).close()
    with closing(Database.open(path, schema_versions())) as database:
        database.write(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
        yield Requests(database, time.time, SystemClock(path.parent).expiry)


class Restarts:
    """Restarts of workloads that operators requested: counted for each key, so that pending restarts still happen."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._db = database
        self._now = now

    def request(self, key: AnyKey, by: str) -> None:
        """Count one more restart of ``key``."""
        self._db.write(
            """INSERT INTO restarts VALUES (?1, 1, ?2, ?3) ON CONFLICT (key)
            DO UPDATE SET count = count + 1, "by" = ?2, at = ?3""",
            (str(key), by, self._now()),
        )

    def count(self, key: AnyKey) -> int:
        """The number of requested restarts of ``key``."""
        return int(self._db.value("SELECT count FROM restarts WHERE key = ?", (str(key),)) or 0)

    def sweep(self) -> None:
        """Forget the restarts of workloads that are no longer recorded."""
        self._db.write("DELETE FROM restarts WHERE key NOT IN (SELECT key FROM applied)")


def _decode_request(row: tuple[Any, ...]) -> Request:
    number, kind, args, by, at, started, done, result = row
    with stored_row("requests", number):
        answer = None if result is None else msgspec.json.decode(result, type=dict[str, Any])
        return Request(number, kind, msgspec.json.decode(args, type=dict[str, Any]), by, at, started, done, answer)
