"""Between SQL and types: keys as text and back, ranges of keys, sqlite3's errors in our own words."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from reconciler.errors import CorruptRowError, DiskFull, RecordsError
from reconciler.model.key import GVC_SCOPED, Key

AnyKey: TypeAlias = Key | str
"""A key, or its text where the caller has it already: 100,000 of them are not worth parsing to look one up."""

ROOM = 1 << 20
"""Bytes: with less than this free, an input/output error is the disk being full (SQLite does not always say so)."""

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
"""What parsing raises where a stored value is none that this program wrote."""


def stored_key(text: str, table: str) -> Key:
    """The key ``text`` out of ``table``. Raises RecordsError where it is none."""
    try:
        return Key.parse(text)
    except UNPARSABLE as error:
        raise CorruptRowError(table, text) from error


@contextmanager
def stored_row(table: str, name: object) -> Iterator[None]:
    """What cannot be parsed within it, of the row ``name`` of ``table``, is raised as RecordsError."""
    try:
        yield
    except UNPARSABLE as error:
        raise CorruptRowError(table, name) from error


def prefix_range(prefix: str) -> tuple[str, str]:
    """The range of text, first and behind the last, that begins with ``prefix`` (which ends in a slash)."""
    return prefix, prefix[:-1] + chr(ord("/") + 1)


def gvc_ranges(gvc: str) -> list[tuple[str, str]]:
    """The ranges of keys that live in ``gvc``, in key order."""
    return [prefix_range(f"{kind}/{gvc}/") for kind in sorted(GVC_SCOPED)]


def records_error(error: sqlite3.Error, path: Path | None) -> RecordsError:
    """What went wrong, for people; DiskFull where room is what is missing."""
    where = f"the records ({path})" if path else "the records in memory"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and path is not None and _is_full(path)):
        return DiskFull(f"{where}: the disk is full; what was recorded before is safe, make room and it goes on")
    return RecordsError(f"{where} cannot be used: {_WORDS.get(code, str(error))}")


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < ROOM
    except OSError:
        return False
