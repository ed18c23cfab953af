"""One SQLite connection: opened safely, migrated, and never left inside a transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from reconciler.errors import DiskFull, RecordsError
from reconciler.records.connection import connect_database, create_file, to_disk
from reconciler.records.reserve import FILE as RESERVE_FILE
from reconciler.records.reserve import DiskReserve
from reconciler.records.sql import records_error

FILE = "records.sqlite"
"""Name of the file in the state directory."""

Row = tuple[Any, ...]
Migrations = Sequence[Sequence[str]]

WRITING = (
    "PRAGMA page_size = 8192",  # a record with its state takes 2 to 3 KB: three fit into a page
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 8192",  # 64 MB: usually ``checkpoint`` runs before, at an idle moment
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = FAST",
)

CHECKPOINT_CHANGES = 1000
"""The number of changed rows, each about a page of the log, that make a checkpoint worthwhile."""


EMPTY_TRIES, EMPTY_PAUSE = 20, 0.02
"""How often a log with secrets is tried to be emptied, and the seconds between: transactions take milliseconds."""


class Database:
    """Executes SQL and returns rows; every sqlite3.Error becomes a RecordsError (DiskFull on a full disk)."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self.path = path
        self.reserve = DiskReserve(path.parent / RESERVE_FILE if path is not None else None)
        self._connection = connection
        self._depth = 0
        self._failed_tx = False
        self._changes_at_checkpoint = 0
        self._in_snapshot = False
        self._wants_snapshot = False
        self._has_dropped_secrets = False

    @classmethod
    def open(cls, path: Path | None, migrations: Migrations, *, read_only: bool = False) -> Database:
        """Open the database at ``path`` (None: in memory) and migrate it to the newest schema. Raises RecordsError."""
        try:
            connection = connect_database(path, read_only)
            if path is None:
                connection.deserialize(_new_image(tuple(migrations)))
        except sqlite3.Error as error:
            raise records_error(error, path) from error
        except OSError as error:
            raise RecordsError(f"the records ({path}) cannot be created: {error.strerror}") from error
        database = cls(connection, path)
        try:
            for pragma in () if read_only else WRITING:
                database.write(pragma)
            migrate_schema(database, migrations, read_only=read_only)
        except RecordsError:
            connection.close()
            raise
        return database

    def close(self) -> None:
        """Close the connection; may be repeated."""
        self._connection.close()

    def one(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """The first row, or None."""
        try:
            row: Row | None = self._connection.execute(sql, args).fetchone()
        except sqlite3.Error as error:
            raise self._note_failure(error) from error
        return row

    def value(self, sql: str, args: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, args)
        return None if row is None else row[0]

    def all(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Every row."""
        try:
            return self._connection.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise self._note_failure(error) from error

    def stream(self, sql: str, args: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows one by one, so that 100,000 of them are never in memory together."""
        try:
            # `yield from` would close the cursor of a reader that stops early, which a closed database rejects.
            for row in self._connection.execute(sql, args):  # noqa: UP028
                yield row
        except sqlite3.Error as error:
            raise self._note_failure(error) from error

    def write(self, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute one statement that changes something, in its own transaction unless one is open."""
        self._refuse_doomed()
        if self._in_snapshot:
            with self._outside_snapshot():
                return self.write(sql, args)
        try:
            return self._connection.execute(sql, args)
        except sqlite3.Error as error:
            raise self._note_failure(error) from error

    def write_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute the statement for every row, all or none."""
        with self.transaction():
            try:
                self._connection.executemany(sql, rows)
            except sqlite3.Error as error:
                raise self._note_failure(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads within it see a single moment, despite other writers, and lock once instead of once per row.

        Writes within it are committed as usual. Later reads see the moment after them, once no ``stream`` is open.
        """
        if self._depth or self._wants_snapshot:
            yield
            return
        self._begin_snapshot()
        self._wants_snapshot = True
        try:
            yield
        finally:
            self._wants_snapshot = False
            self._end_snapshot()

    def _begin_snapshot(self) -> None:
        self.write("BEGIN")
        self._in_snapshot = True

    def _end_snapshot(self) -> None:
        self._in_snapshot = False
        try:
            # A transaction that another thread began outside the snapshot is ended by that thread.
            if not self._depth and self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._roll_back()
            raise self._note_failure(error) from error

    @contextmanager
    def _outside_snapshot(self) -> Iterator[None]:
        """Suspend the snapshot."""
        self._end_snapshot()
        try:
            yield
        finally:
            if self._wants_snapshot:
                self._begin_snapshot()

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """A transaction that is not synced to disk at once: for work that is simply repeated after a power cut.

        A crash of the process alone loses nothing, and the next durable transaction makes this one durable. Within
        another transaction it is as durable as that one.
        """
        alone = not self._depth
        if alone:
            self.write("PRAGMA synchronous = NORMAL")
        try:
            with self.transaction():
                yield
        finally:
            if alone:
                self.write("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: committed at the end, rolled back on any exception; an inner transaction joins the outer.

        After a failure in any part, the whole can only be rolled back, even if the caller suppresses the error.
        """
        self._refuse_doomed()
        if self._in_snapshot:
            with self._outside_snapshot(), self.transaction():
                yield
            return
        if self._depth == 0:
            self.write("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            self._refuse_doomed()
            if self._depth == 1:
                self.write("COMMIT")
        except BaseException:
            self._failed_tx = True
            raise
        finally:
            self._depth -= 1
            if self._depth == 0 and self._failed_tx:
                self._roll_back()

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """Statements within it overwrite the content that they delete, or move as an update does.

        Elsewhere, a page that becomes free keeps its content: to overwrite all of them would make each commit longer.
        """
        self.write("PRAGMA secure_delete = ON")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA secure_delete = FAST")

    @contextmanager
    def dropping_secrets(self) -> Iterator[None]:
        """As ``overwriting``; no file has the content that was dropped after the next ``checkpoint``."""
        with self.overwriting():
            yield
        self._has_dropped_secrets = True

    def needs_checkpoint(self) -> bool:
        """Whether the log is large enough for a ``checkpoint``, or has secrets that were dropped."""
        changes = self._connection.total_changes - self._changes_at_checkpoint
        return self.path is not None and (self._has_dropped_secrets or changes >= CHECKPOINT_CHANGES)

    def checkpoint(self) -> None:
        """Move the content of the log into the database; call it at an idle moment.

        It uses a separate connection, so that another thread can use this one. Content that cannot be written stays in
        the log, and the next transaction reports the cause. A log with secrets that were dropped is emptied, once
        nothing reads it.
        """
        if self.path is None:
            return
        self._changes_at_checkpoint = self._connection.total_changes
        drops, self._has_dropped_secrets = self._has_dropped_secrets, False
        is_empty = False
        with suppress(sqlite3.Error), closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as other:
            if drops:
                is_empty = _empty_log(other)
            else:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if drops and not is_empty:
            self._has_dropped_secrets = True

    def backup(self, to: Path) -> None:
        """Write a consistent copy to ``to`` (mode 0600) despite other readers and writers, completely or not at all."""
        part = to.with_name(to.name + ".part")
        try:
            part.unlink(missing_ok=True)
            create_file(part)
            copy = sqlite3.connect(part, isolation_level=None)
            try:
                self._connection.backup(copy)
                whole = copy.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            finally:
                copy.close()
            if not whole:
                raise RecordsError(f"the records ({self.path}) are damaged; no backup was written, and older ones stay")
            part.replace(to)
            to_disk(to.parent)
        except sqlite3.Error as error:
            raise records_error(error, to) from error
        except OSError as error:
            raise RecordsError(f"the backup {to} cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _refuse_doomed(self) -> None:
        if self._failed_tx:
            raise RecordsError("nothing was recorded: an earlier part of the same transaction failed")

    def _roll_back(self) -> None:
        self._failed_tx = False
        # On some errors, such as a full disk, SQLite rolls back by itself; ROLLBACK would then fail.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _note_failure(self, error: sqlite3.Error) -> RecordsError:
        if self._depth:
            self._failed_tx = True
        failure = records_error(error, self.path)
        if isinstance(failure, DiskFull):
            self.reserve.release()
        return failure


@cache
def _new_image(migrations: Migrations) -> bytes:
    """The content of a new file: for databases in memory, of which a process may open many."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        database = Database(connection, None)
        for pragma in WRITING:
            database.write(pragma)
        migrate_schema(database, migrations)
        return connection.serialize()


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Empty the log; False if another connection uses it for as long as this tries. Raises sqlite3.Error."""
    for _ in range(EMPTY_TRIES):
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
            return True
        time.sleep(EMPTY_PAUSE)
    return False


def migrate_schema(database: Database, migrations: Migrations, *, read_only: bool = False) -> None:
    """Migrate the schema from ``PRAGMA user_version`` to ``len(migrations)``, all steps in one transaction.

    ``migrations[n]`` contains the statements from version n to n + 1. Raises RecordsError if the file is newer than
    this program, or older and opened read-only.
    """
    newest = len(migrations)
    version: int = database.value("PRAGMA user_version")
    if version > newest:
        raise RecordsError(
            f"the records ({database.path}) have schema version {version}, made by a newer reconciler;"
            f" this one knows versions up to {newest}: install the newer one, or restore a backup made before"
        )
    if version == newest:
        return
    if read_only:
        raise RecordsError(
            f"the records ({database.path}) have schema version {version} and must first be brought to {newest}:"
            " start the daemon or run 'reconciler apply' once"
        )
    with database.transaction():
        # Read again: another process may have migrated while this one waited for the write lock.
        version = database.value("PRAGMA user_version")
        for statement in (statement for statements in migrations[version:] for statement in statements):
            database.write(statement)
        database.write(f"PRAGMA user_version = {newest}")
