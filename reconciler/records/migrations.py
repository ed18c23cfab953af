"""The schema of the records: ``schema.sql`` is version 1, and each later version is a migration."""

from __future__ import annotations

import functools
from pathlib import Path

SCHEMA_FILE = Path(__file__).with_name("schema.sql")
"""The tables, indexes and triggers of version 1: never edited once it is released."""

MIGRATIONS: tuple[tuple[str, ...], ...] = ()
"""The statements from version 1 to 2, from 2 to 3, and so on; a released migration is never edited."""


def schema_versions() -> tuple[tuple[str, ...], ...]:
    """The statements to each version from the one before; those of version 1 make a new file."""
    return (_first_version(), *MIGRATIONS)


@functools.cache
def _first_version() -> tuple[str, ...]:
    return tuple(SCHEMA_FILE.read_text().split(";\n\n")[:-1])
