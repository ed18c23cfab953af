"""The schema of a new file of records, as SQL: what all migrations together create."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from reconciler.records.migrations import MIGRATIONS


def statements() -> str:
    """The statements in order of creation, each ended by a semicolon and an empty line."""
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in (each for migration in MIGRATIONS for each in migration):
            database.execute(statement)
        created = database.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        )
        return "".join(f"{sql};\n\n" for (sql,) in created)
