"""Credentials and the audit log in backups of the records, so that a backup is one file.

Each table becomes one of the backup, with a prefix to its name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from reconciler.access.store import FILE, MIGRATIONS
from reconciler.errors import RecordsError
from reconciler.records.backup import ATTACHED, remove_database, uri_of
from reconciler.records.connection import to_disk
from reconciler.records.database import Database
from reconciler.records.sql import records_error

_VERSION = f"{ATTACHED}version"
FORGOTTEN = ("answers", "logins", "sessions")
"""Tables that are in no backup: who was logged in then logs in again, and old requests are not repeated."""


class Restored(Enum):
    """What became of the credentials and the audit log in a backup."""

    NONE = auto()
    """The backup has none."""
    RESTORED = auto()
    UNCHANGED = auto()
    """The state directory has them, and they stay: those of a backup would have revoked keys."""


def add_to_backup(state: Path, backup: Path) -> bool:
    """Add the credentials and the audit log in the directory ``state`` to ``backup``; returns whether there are any.

    Raises RecordsError.
    """
    if not (state / FILE).exists():
        return False
    with _attach_database(backup, f"{(state / FILE).absolute().as_uri()}?mode=ro") as connection:
        # One transaction sees one moment, despite the writes of the API.
        connection.execute("BEGIN")
        version = connection.execute("PRAGMA other.user_version").fetchone()[0]
        for table in _list_tables(connection, "other"):
            connection.execute(f"CREATE TABLE {ATTACHED}{table} AS SELECT * FROM other.{table}")
        connection.execute(f"CREATE TABLE {_VERSION} AS SELECT {version:d} AS version")
        connection.execute("COMMIT")
    to_disk(backup)
    return True


def check_backup(backup: Path) -> None:
    """Raise RecordsError if the credentials in ``backup`` are of a newer program."""
    _read_schema_version(backup)


def restore_from_backup(backup: Path, state: Path) -> Restored:
    """Write the credentials and the audit log in ``backup`` to the directory ``state``, migrated, if it has none.

    For the holder of the state lock. Raises RecordsError.
    """
    if not (version := _read_schema_version(backup)):
        return Restored.NONE
    if (state / FILE).exists():
        return Restored.UNCHANGED
    fresh = state / f"{FILE}.restoring"
    with suppress(OSError):
        remove_database(fresh)
    try:
        Database.open(fresh, MIGRATIONS[:version]).close()
        with _attach_database(fresh, uri_of(backup)) as connection:
            connection.execute("BEGIN")
            for table in _list_tables(connection, "main"):
                names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
                columns = ", ".join(f'"{name}"' for name in names)
                connection.execute(f"INSERT INTO {table} SELECT {columns} FROM other.{ATTACHED}{table}")
            connection.execute("COMMIT")
        Database.open(fresh, MIGRATIONS).close()
        to_disk(fresh)
        fresh.replace(state / FILE)
        to_disk(state)
    finally:
        with suppress(OSError):
            remove_database(fresh)
    return Restored.RESTORED


def _read_schema_version(backup: Path) -> int:
    """The schema version of the credentials in ``backup``, 0 if it has none. Raises RecordsError for a newer one."""
    try:
        with closing(sqlite3.connect(uri_of(backup), uri=True)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_VERSION,)).fetchone() is None:
                return 0
            version = int(connection.execute(f"SELECT version FROM {_VERSION}").fetchone()[0])
    except sqlite3.DatabaseError:  # the check of the records in it says what is wrong
        return 0
    if not 0 < version <= len(MIGRATIONS):
        raise RecordsError(f"{backup} has credentials of version {version}, of a newer reconciler: install that one")
    return version


def _list_tables(connection: sqlite3.Connection, schema: str) -> list[str]:
    cursor = connection.execute(f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in cursor if name not in FORGOTTEN and not name.startswith(("sqlite_", ATTACHED))]


@contextmanager
def _attach_database(path: Path, other: str) -> Iterator[sqlite3.Connection]:
    """A connection to ``path`` that sees the database with the URI ``other`` under this name."""
    where = path.absolute().as_uri()
    with _report_sqlite_errors(path), closing(sqlite3.connect(where, uri=True, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS other", (other,))
        yield connection


@contextmanager
def _report_sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise records_error(error, path) from error
