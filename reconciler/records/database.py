"""One SQLite connection: opened safely, migrated, and never left half way through a transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reconciler.errors import RecordsError
from reconciler.records.border import records_error

Row = tuple[Any, ...]
Migrations = Sequence[Sequence[str]]

BUSY = 5.0
"""Seconds to wait for another process's transaction; the daemon's own last milliseconds."""

WRITING = (
    "PRAGMA page_size = 8192",  # a record with its state is 2 to 3 KB: three fit, where 4096 would hold one
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = FAST",
)


class Database:
    """SQL in, rows out; every sqlite3.Error leaves as RecordsError (DiskFull where the disk is full)."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self.path = path
        self._connection = connection
        self._depth = 0
        self._doomed = False

    @classmethod
    def open(cls, path: Path | None, migrations: Migrations, *, read_only: bool = False) -> Database:
        """The database at ``path`` (None: in memory), brought to the newest schema. Raises RecordsError."""
        try:
            connection = _connect(path, read_only)
        except sqlite3.Error as error:
            raise records_error(error, path) from error
        except OSError as error:
            raise RecordsError(f"the records ({path}) cannot be created: {error.strerror}") from error
        database = cls(connection, path)
        try:
            for pragma in () if read_only else WRITING:
                database.write(pragma)
            database.write("PRAGMA cache_size = -32768")
            migrate(database, migrations, read_only=read_only)
        except RecordsError:
            connection.close()
            raise
        return database

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._connection.close()

    def one(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """The first row, or None."""
        try:
            row: Row | None = self._connection.execute(sql, args).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
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
            raise self._failed(error) from error

    def stream(self, sql: str, args: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows one by one, so that 100,000 of them never stand in memory."""
        try:
            yield from self._connection.execute(sql, args)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def write(self, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        """One statement that changes something; its own transaction unless one is open."""
        self._refuse_doomed()
        try:
            return self._connection.execute(sql, args)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def write_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same statement for every row, all or none."""
        with self.transaction():
            try:
                self._connection.executemany(sql, rows)
            except sqlite3.Error as error:
                raise self._failed(error) from error

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """A transaction that is not flushed to the disk at once: for what is merely done again if a power cut takes it.

        Whatever happens to the process alone loses nothing, the next durable transaction makes this one durable, and
        within another it is as durable as that.
        """
        alone = not self._depth
        if alone:
            self.write("PRAGMA synchronous = NORMAL")
        try:
            with self.transaction():
                yield
        finally:
            if alone:
                self._connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: committed at the end, rolled back where anything is raised; an inner one joins the outer.

        Once a part has failed the whole can only be rolled back, even where the caller swallows the error.
        """
        self._refuse_doomed()
        if self._depth == 0:
            self.write("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            self._refuse_doomed()
            if self._depth == 1:
                self.write("COMMIT")
        except BaseException:
            self._doomed = True
            raise
        finally:
            self._depth -= 1
            if self._depth == 0 and self._doomed:
                self._roll_back()

    def backup(self, to: Path) -> None:
        """A consistent copy at ``to`` (mode 0600), made while others read and write; whole or not at all."""
        part = to.with_name(to.name + ".part")
        try:
            part.unlink(missing_ok=True)
            _create(part)
            copy = sqlite3.connect(part, isolation_level=None)
            try:
                self._connection.backup(copy)
                whole = copy.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            finally:
                copy.close()
            if not whole:
                raise RecordsError(f"the records ({self.path}) are damaged; no backup was made, older ones are kept")
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
        if self._doomed:
            raise RecordsError("nothing was recorded: an earlier part of the same transaction failed")

    def _roll_back(self) -> None:
        self._doomed = False
        # SQLite rolls back by itself on some errors (a full disk among them); ROLLBACK would then fail in turn.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _failed(self, error: sqlite3.Error) -> RecordsError:
        if self._depth:
            self._doomed = True
        return records_error(error, self.path)


def to_disk(path: Path) -> None:
    """Return when the file, or the entries of the directory, at ``path`` would survive a power cut. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def migrate(database: Database, migrations: Migrations, *, read_only: bool = False) -> None:
    """Bring the schema from ``PRAGMA user_version`` to ``len(migrations)``, all steps in one transaction.

    ``migrations[n]`` holds the statements that lead from version n to n + 1. Raises RecordsError where the file is
    newer than this program, or older and open for reading only.
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
        for statements in migrations[database.value("PRAGMA user_version") :]:
            for statement in statements:
                database.write(statement)
        database.write(f"PRAGMA user_version = {newest}")


def _connect(path: Path | None, read_only: bool) -> sqlite3.Connection:
    if path is None:
        target = ":memory:"
    elif read_only:
        if not _is_there(path):
            raise RecordsError(f"there are no records yet at {path}: nothing has been applied here")
        target = f"{path.absolute().as_uri()}?mode=ro"
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(path)
        target = str(path)
    return sqlite3.connect(
        target, timeout=BUSY, isolation_level=None, check_same_thread=False, cached_statements=256, uri=read_only
    )


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True  # SQLite's own refusal then says what to do
    except OSError:
        return False
    return True


def _create(path: Path) -> None:
    # Before SQLite does, so that the file, and -wal and -shm after it, are never readable by others. One that is there
    # is not touched: closing any descriptor of it would end the locks of a connection that this process has already.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
