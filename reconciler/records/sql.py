"""Converts between SQL and types: keys and their text, ranges of keys, and readable messages for sqlite3 errors."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from reconciler.errors import CorruptRowError, DiskFull, RecordsError
from reconciler.model.key import GVC_SCOPED, Key
from reconciler.times import ExpiryTime

Expiry: TypeAlias = Callable[[], ExpiryTime]
"""The time by which rows expire (see reconciler.times)."""

AnyKey: TypeAlias = Key | str
"""A key, or its text if the caller has that: parsing 100,000 of them just for lookups would be wasteful."""

ROOM = 1 << 20
"""Bytes: with less free space, an input/output error means a full disk (SQLite does not always report it as such)."""

_WORDS = {
    sqlite3.SQLITE_BUSY: "another process has been writing to them for too long; try again",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; stop the daemon and restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a database of the reconciler; move it away or restore a backup",
    sqlite3.SQLITE_READONLY: (
        "they were opened for reading only, or this user may not write to their directory (which even reading needs"
        " while no daemon has them open); run the command as the user of the daemon or as root"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "this user may not open the file, or not write to its directory (which even reading needs);"
        " run the command as the user of the daemon or as root"
    ),
    sqlite3.SQLITE_PERM: "this user may not; run the command as the user of the daemon or as root",
}


UNPARSABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError)
"""Exceptions from parsing a stored value that this program did not write."""


def time_of(column: str) -> str:
    """SQL of the time by which a row expires whose column ``column`` has the time when it was made.

    Its three parameters are those of ``time_parameters``.
    """
    return f"(CASE WHEN {column} >= ? THEN ? ELSE ? END)"


class TimeParameters(NamedTuple):
    """The parameters of ``time_of``: what was made ``since`` a time expires by ``now``, the rest by ``steady``."""

    since: float
    now: float
    steady: float


def time_parameters(expiry: ExpiryTime) -> TimeParameters:
    """The parameters of ``time_of``."""
    return TimeParameters(expiry.since, expiry.now, min(expiry.now, expiry.steady))


def stored_key(text: str, table: str) -> Key:
    """Parse the key ``text`` from ``table``. Raises RecordsError if it is invalid."""
    try:
        return Key.parse(text)
    except UNPARSABLE as error:
        raise CorruptRowError(table, text) from error


@contextmanager
def stored_row(table: str, name: object) -> Iterator[None]:
    """Parsing errors within it become a RecordsError about the row ``name`` of ``table``."""
    try:
        yield
    except UNPARSABLE as error:
        raise CorruptRowError(table, name) from error


def prefix_range(prefix: str) -> tuple[str, str]:
    """The range (first, end) of texts that begin with ``prefix``; the end is excluded."""
    return prefix, prefix + chr(sys.maxunicode)


def gvc_ranges(gvc: str) -> list[tuple[str, str]]:
    """The ranges of the keys in ``gvc``, in key order."""
    return [prefix_range(f"{kind}/{gvc}/") for kind in sorted(GVC_SCOPED)]


def records_error(error: sqlite3.Error, path: Path | None) -> RecordsError:
    """A readable RecordsError; DiskFull if disk space is missing."""
    where = f"the records ({path})" if path else "the records in memory"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and path is not None and _is_full(path)):
        return DiskFull(f"{where}: the disk is full; earlier records are safe; free some space to continue")
    return RecordsError(f"{where} cannot be used: {_WORDS.get(code, str(error))}")


def _is_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < ROOM
