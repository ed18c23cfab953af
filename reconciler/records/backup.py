"""Restores records from a backup: checks it first, replaces the records as a whole, and retains the former ones."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from reconciler.errors import RecordsError, RefusedError
from reconciler.iteration import Progress, find_reporter
from reconciler.records.backup_times import AWAITED, FAILED, FAILURE, TAKEN
from reconciler.records.connection import BUSY, to_disk
from reconciler.records.database import Database
from reconciler.records.migrations import schema_versions
from reconciler.records.notifications.deliveries import CURSOR
from reconciler.records.sql import records_error

_PAGES = 4096
"""The pages of SQLite that are copied before the progress is told."""

TABLES = ("applied", "desired", "inventory", "journal", "meta", "runs")
"""Tables that every version of the records has had."""

BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite creates beside a database."""

ATTACHED = "access_"
"""How the names of tables begin that a backup has beside those of the records: credentials and the audit log."""

FORGOTTEN = (
    "approvals",
    "blobs",
    "commands",
    "deliveries",
    "journal",
    "notices",
    "requests",
    "trouble_groups",
    "troubles",
)
"""Tables whose content in a backup is outdated and must not take effect: steps in flight are planned again, and
approvals, commands and requests must be repeated, and messages that waited then were sent since. Decoded files are
decoded again: the cached content of a Git file never comes from another place."""


class RecordsSummary(msgspec.Struct, frozen=True):
    """The content of a records file: resources, bytes, and the start of the last run (seconds since the epoch)."""

    resources: int
    size: int
    last_run: float | None


def summarize_records(path: Path) -> RecordsSummary:
    """Summarize the records at ``path``, which may be in use. Raises RecordsError if they cannot be read."""
    with _open_database(path) as connection:
        return _read_summary(connection, path)


def mark_backup(backup: Path, at: float) -> None:
    """Record in the file ``backup`` that it is one of the records at ``at``: restored ones know how old they are.

    Raises RecordsError.
    """
    try:
        with closing(sqlite3.connect(backup, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("DELETE FROM meta WHERE name IN (?, ?, ?)", (FAILED, FAILURE, AWAITED))
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (TAKEN, at))
            connection.execute("COMMIT")
        to_disk(backup)
    except sqlite3.Error as error:
        raise records_error(error, backup) from error
    except OSError as error:
        raise RecordsError(f"the backup {backup} cannot be written: {error.strerror}") from error


def verify_backup(path: Path) -> RecordsSummary:
    """Check and summarize the backup ``path``.

    Raises RecordsError if it is no records file, is damaged, or was made by a newer reconciler.
    """
    with _open_database(path) as connection:
        faults = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if faults != "ok":
            raise RecordsError(f"{path} is damaged ({' '.join(str(faults).split())[:200]}); take an older backup")
        named = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN (SELECT value FROM json_each(?))"
        if connection.execute(named, (msgspec.json.encode(TABLES).decode(),)).fetchone()[0] != len(TABLES):
            raise RecordsError(f"{path} is no backup of the reconciler; make one with: reconciler backup FILE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > (newest := len(schema_versions())):
            raise RecordsError(
                f"{path} has schema version {version}, made by a newer reconciler; this one knows versions up to "
                f"{newest}: install the newer one"
            )
        _check_schema(connection, path, version)
        return _read_summary(connection, path)


def _check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise RecordsError if the tables, indexes, triggers and views are not those of the migrations.

    A foreign trigger, for example, would remain active in the restored records: it could bring back a dropped approval.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as reference:
        for statement in (statement for statements in schema_versions()[:version] for statement in statements):
            reference.execute(statement)
        expected, actual = _read_schema(reference), _read_schema(connection)
    for kind, name, _, _ in sorted(actual - expected, key=str):
        if kind == "table" and str(name).startswith(ATTACHED):
            continue
        raise RecordsError(
            f"{path} holds the {kind} {str(name)[:100]!r}, which no reconciler makes: somebody has changed "
            "it; take another backup"
        )
    for kind, name, _, _ in sorted(expected - actual, key=str):
        raise RecordsError(f"{path} lacks the {kind} {name}, which version {version} of the records has")


def _read_schema(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """Type, name, table and SQL of everything in the schema, except what SQLite creates itself."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    own = (("table", "sqlite_sequence"), ("table", "sqlite_stat1"), ("table", "sqlite_stat4"))
    return {row for row in rows if row[:2] not in own and not (row[0] == "index" and row[3] is None)}


def restore_backup(backup: Path, path: Path, *, force: bool) -> Path | None:
    """Replace the records at ``path`` with ``backup``, migrated; returns the path of the former ones, if any.

    For the holder of the state lock. Raises RefusedError if there are records and ``force`` is not set, RecordsError if
    the backup is unusable, another command has the records open, or the disk is full. In every case, even after a power
    cut, either the former records or the restored ones exist completely.
    """
    summary = verify_backup(backup)
    if _is_same_file(backup, path):
        raise RefusedError(f"{backup} is the file of the records itself; name a backup")
    if path.exists() and not force:
        raise RefusedError(
            f"there are records at {path} already; to put the {summary.resources} resources of the backup in their "
            "place, add --force (the former records stay beside them)"
        )
    fresh = path.with_name(f"{path.name}.restoring")
    try:
        remove_database(fresh)
        _copy_backup(backup, fresh)
        verify_backup(fresh)  # use the checked copy, even if the backup has changed since
        _prepare_copy(fresh)
        aside = _swap_records(fresh, path)
    except sqlite3.Error as error:
        raise records_error(error, fresh) from error
    except OSError as error:
        raise RecordsError(f"the records cannot be restored: {error.filename}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            remove_database(fresh)
    return aside


def _prepare_copy(fresh: Path) -> None:
    """Migrate the copy, drop what must not take effect, and leave it as one file that is synced to disk."""
    database = Database.open(fresh, schema_versions())
    try:
        with database.transaction():
            for table in FORGOTTEN:
                database.write(f"DELETE FROM {table}")
            database.write("DELETE FROM meta WHERE name = ?", (CURSOR,))
            attached = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, ?) = ?"
            for (name,) in database.all(attached, (len(ATTACHED), ATTACHED)):
                escaped = name.replace('"', '""')
                database.write(f'DROP TABLE "{escaped}"')
    finally:
        database.close()
    to_disk(fresh)


def _swap_records(fresh: Path, path: Path) -> Path | None:
    aside = (
        next(candidate for candidate in _names_beside(path) if not os.path.lexists(candidate))
        if path.exists()
        else None
    )
    if aside is None:
        remove_database(path)  # a log without its file would be replayed into the new one
        fresh.replace(path)
    else:
        with _lock_database(path) as whole:
            if whole:
                os.link(path, aside)
            else:
                for ending in (*BESIDE, ""):
                    with suppress(FileNotFoundError):
                        os.rename(f"{path}{ending}", f"{aside}{ending}")
            fresh.replace(path)
    to_disk(path.parent)
    return aside


@contextmanager
def _lock_database(path: Path) -> Iterator[bool]:
    """Lock the database at ``path`` exclusively and reduce it to one file; yields False if it is too damaged for that.

    Raises RecordsError if another process keeps it locked.
    """
    with closing(sqlite3.connect(path, timeout=BUSY, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            whole = not any(Path(f"{path}{ending}").exists() for ending in BESIDE[:2])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise RecordsError(
                    f"another command has the records ({path}) open, such as `reconciler events --follow`; end it"
                ) from error
            whole = False
        except sqlite3.DatabaseError:
            whole = False
        yield whole


def uri_of(backup: Path) -> str:
    """The URI by which SQLite reads ``backup``; without a log beside it, it writes nothing there."""
    alone = "" if Path(f"{backup}-wal").exists() else "&immutable=1"
    return f"{backup.absolute().as_uri()}?mode=ro{alone}"


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise RecordsError(f"there is no file {path}")
    try:
        with closing(sqlite3.connect(uri_of(path), uri=True)) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise
        raise RecordsError(f"{path} cannot be read as records: {error}") from error


def _read_summary(connection: sqlite3.Connection, path: Path) -> RecordsSummary:
    resources = connection.execute("SELECT count(*) FROM inventory").fetchone()[0]
    last = connection.execute("SELECT max(started) FROM runs").fetchone()[0]
    return RecordsSummary(resources, path.stat().st_size, last)


def _copy_backup(backup: Path, fresh: Path) -> None:
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with _open_database(backup) as source, closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        report = find_reporter() or (lambda _: None)

        def report_pages(_: int, left: int, pages: int) -> None:
            report(Progress("restoring pages", pages - left, pages))

        source.backup(target, pages=_PAGES, progress=report_pages)


def remove_database(path: Path) -> None:
    """Delete the database at ``path``, and the files that SQLite keeps beside it."""
    for ending in ("", *BESIDE):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _names_beside(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.before-restore")
    for number in count(2):
        yield path.with_name(f"{path.name}.before-restore-{number}")
