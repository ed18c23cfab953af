"""Deletes many rows a few at a time, beside the connection that runs use."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from reconciler.iteration import iterate_batches
from reconciler.records.database import Database
from reconciler.records.sql import records_error

SLICE = 100
"""Rows that one transaction deletes while others wait for it: about a millisecond."""

_PATIENCE = 5.0
"""Seconds that it waits for the transaction of another connection."""


def delete_in_slices(database: Database, query: str, statement: str) -> int:
    """Execute ``statement`` for every row of ``query``, in any thread; returns the number of rows.

    It uses a separate connection, so that another thread can use ``database`` and never waits for more than a slice.
    Raises RecordsError; what was deleted before stays deleted.
    """
    if database.path is None:
        rows = database.all(query)
        database.write_many(statement, rows)
        return len(rows)
    try:
        with closing(sqlite3.connect(database.path, timeout=_PATIENCE, isolation_level=None)) as other:
            return _delete_slices(other, query, statement)
    except sqlite3.Error as error:
        raise records_error(error, database.path) from error


def _delete_slices(connection: sqlite3.Connection, query: str, statement: str) -> int:
    rows = connection.execute(query).fetchall()
    for some in iterate_batches(rows, SLICE):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, some)
        connection.execute("COMMIT")
    return len(rows)
