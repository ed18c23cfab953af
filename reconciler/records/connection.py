"""Connections to the file of the records, which nobody else may read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from reconciler.errors import RecordsError, UsageError
from reconciler.private_files import check_regular, make_directory

ENDINGS = ("", "-wal", "-shm", "-journal")
"""Of the files of a database: its own, and those that SQLite keeps beside it."""

BUSY = 5.0
"""Seconds to wait for another process's transaction; the daemon's own last milliseconds."""


def connect(path: Path | None, read_only: bool) -> sqlite3.Connection:
    """A connection to the file at ``path`` (None: in memory), made where it is missing.

    Raises sqlite3.Error, OSError where it cannot be made, and RecordsError where there is nothing to read.
    """
    if path is None:
        target = ":memory:"
    elif read_only:
        if not _is_there(path):
            raise RecordsError(f"there are no records yet at {path}: nothing has been applied here")
        target = f"{path.absolute().as_uri()}?mode=ro"
    else:
        make_directory(path.parent)
        create(path)
        target = str(path)
    if path is not None:
        for ending in ENDINGS:  # SQLite would follow a link, and make a file at the other end of it
            _check(path.with_name(f"{path.name}{ending}"))
    return sqlite3.connect(
        target, timeout=BUSY, isolation_level=None, check_same_thread=False, cached_statements=256, uri=read_only
    )


def _check(path: Path) -> None:
    """Raise RecordsError where something other than a file is at ``path``; what may not be seen SQLite refuses."""
    with suppress(PermissionError):
        try:
            check_regular(path)
        except UsageError as error:
            raise RecordsError(f"the records cannot be opened: {error}") from None


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True  # SQLite's own refusal then says what to do
    except OSError:
        return False
    return True


def create(path: Path) -> None:
    """Make an empty file at ``path`` before SQLite does, so that it, -wal and -shm are never readable by others.

    One that is there is not touched: closing any descriptor of it would end the locks of a connection that this
    process has already. Raises OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
