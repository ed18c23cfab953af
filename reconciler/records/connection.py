"""Connections to the file of the records, which nobody else may read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from reconciler.errors import RecordsError

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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create(path)
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


def create(path: Path) -> None:
    """Make an empty file at ``path`` before SQLite does, so that it, -wal and -shm are never readable by others.

    One that is there is not touched: closing any descriptor of it would end the locks of a connection that this
    process has already. Raises OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
