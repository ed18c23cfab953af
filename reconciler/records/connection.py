"""Opens connections to the records file, which is not readable by others."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from reconciler.errors import RecordsError, UsageError
from reconciler.private_files import check_regular, make_directory

ENDINGS = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files of a database: its own, and those that SQLite creates beside it."""

BUSY = 5.0
"""Seconds to wait for another process's transaction; transactions of the daemon take milliseconds."""


def connect_database(path: Path | None, read_only: bool) -> sqlite3.Connection:
    """Connect to the file at ``path`` (None: in memory); create it if it is missing.

    Raises sqlite3.Error, OSError if it cannot be created, and RecordsError if there is nothing to read.
    """
    if path is None:
        target = ":memory:"
    elif read_only:
        if not _is_there(path):
            raise RecordsError(f"there are no records yet at {path}: nothing has been applied here")
        target = f"{path.absolute().as_uri()}?mode=ro"
    else:
        make_directory(path.parent)
        create_file(path)
        target = str(path)
    if path is not None:
        for ending in ENDINGS:  # SQLite would follow a link and create a file at its target
            _require_regular_file(path.with_name(f"{path.name}{ending}"))
    return sqlite3.connect(
        target, timeout=BUSY, isolation_level=None, check_same_thread=False, cached_statements=256, uri=read_only
    )


def _require_regular_file(path: Path) -> None:
    """Raise RecordsError if ``path`` is not a regular file; SQLite itself rejects inaccessible paths."""
    with suppress(PermissionError):
        try:
            check_regular(path)
        except UsageError as error:
            raise RecordsError(f"the records cannot be opened: {error}") from None


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True  # SQLite's error message says what to do
    except OSError:
        return False
    return True


def create_file(path: Path) -> None:
    """Create an empty file at ``path`` before SQLite does, so that it, -wal and -shm are never readable by others.

    An existing file is not opened: closing any descriptor of it would release the locks of this process's other
    connections. Raises OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def to_disk(path: Path) -> None:
    """Sync the file, or the entries of the directory, at ``path`` to disk. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
