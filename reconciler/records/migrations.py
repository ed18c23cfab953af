"""The schema of the records: ``schema.sql`` is version 1, and each later version is a migration."""

from __future__ import annotations

import functools
from pathlib import Path

SCHEMA_FILE = Path(__file__).with_name("schema.sql")
"""The tables, indexes and triggers of version 1: never edited once it is released."""

_IS_APPLIED = "EXISTS (SELECT 1 FROM applied WHERE applied.key = desired.key AND applied.digest = desired.digest)"
# Not OR REPLACE: within a trigger, the conflict clause of the statement that fires it would hold.
_ADD = f"""INSERT INTO behind SELECT key, source FROM desired WHERE key = {{key}} AND {{when}} AND NOT {_IS_APPLIED}
        ON CONFLICT DO UPDATE SET source = excluded.source"""
_DROP = """DELETE FROM behind WHERE key = new.key
        AND EXISTS (SELECT 1 FROM desired WHERE key = new.key AND digest = new.digest)"""

_UNREADY = (
    # All that Git wants and no record has, and little else: what is read of it is compared with the records.
    "CREATE TABLE behind (key TEXT PRIMARY KEY, source TEXT NOT NULL) WITHOUT ROWID",
    f"CREATE TRIGGER behind_wanted AFTER INSERT ON desired BEGIN {_ADD.format(key='new.key', when='1')}; END",
    f"""CREATE TRIGGER behind_rewritten AFTER UPDATE OF digest, source ON desired
        WHEN old.digest <> new.digest OR old.source <> new.source BEGIN {_ADD.format(key="new.key", when="1")}; END""",
    "CREATE TRIGGER behind_unwanted AFTER DELETE ON desired BEGIN DELETE FROM behind WHERE key = old.key; END",
    f"CREATE TRIGGER behind_applied AFTER INSERT ON applied BEGIN {_DROP}; END",
    f"""CREATE TRIGGER behind_reapplied AFTER UPDATE OF digest ON applied WHEN old.digest <> new.digest BEGIN {_DROP};
        {_ADD.format(key="new.key", when="digest = old.digest")}; END""",
    f"CREATE TRIGGER behind_lost AFTER DELETE ON applied BEGIN {_ADD.format(key='old.key', when='1')}; END",
    f"INSERT INTO behind SELECT key, source FROM desired WHERE NOT {_IS_APPLIED}",
    "CREATE INDEX inventory_unwell ON inventory (key) WHERE health NOT IN ('Healthy', 'Recorded')",
)

_TIMELINES = (
    """CREATE TABLE timelines (run INTEGER PRIMARY KEY, trace TEXT NOT NULL, phases BLOB NOT NULL,
        left_out INTEGER NOT NULL)""",
    "CREATE TRIGGER timelines_removed AFTER DELETE ON runs BEGIN DELETE FROM timelines WHERE run = old.id; END",
)

_REFUSALS = (
    """CREATE TABLE refusals (digest TEXT PRIMARY KEY, "by" TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL)
        WITHOUT ROWID""",
)

_NOTIFICATIONS = (
    """CREATE TABLE notices (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, source TEXT NOT NULL,
        body BLOB NOT NULL)""",
    """CREATE TABLE deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, channel TEXT NOT NULL,
        thing TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL, sequence INTEGER NOT NULL,
        fingerprint TEXT NOT NULL, message BLOB NOT NULL, created REAL NOT NULL, due REAL NOT NULL,
        status TEXT NOT NULL, tries INTEGER NOT NULL, may_repeat INTEGER NOT NULL, ended REAL, reference TEXT NOT NULL,
        answer TEXT NOT NULL)""",
    "CREATE INDEX deliveries_waiting ON deliveries (channel, id, due) WHERE status = 'waiting'",
    "CREATE INDEX deliveries_collected ON deliveries (due) WHERE status = 'collected'",
    "CREATE INDEX deliveries_sending ON deliveries (channel) WHERE status = 'sending'",
    "CREATE INDEX deliveries_due ON deliveries (due) WHERE status = 'waiting'",
    "CREATE INDEX deliveries_things ON deliveries (channel, thing, id)",
    "CREATE INDEX deliveries_unfinished ON deliveries (source, id) WHERE state IN ('pending', 'running')",
    """CREATE TABLE troubles (event TEXT NOT NULL, key TEXT NOT NULL, location TEXT NOT NULL, source TEXT NOT NULL,
        reason TEXT NOT NULL, message TEXT NOT NULL, since REAL NOT NULL, once INTEGER NOT NULL,
        PRIMARY KEY (event, key, location)) WITHOUT ROWID""",
    "CREATE INDEX troubles_sources ON troubles (event, source)",
    "CREATE INDEX troubles_keys ON troubles (key)",
    """CREATE TABLE trouble_groups (channel TEXT NOT NULL, event TEXT NOT NULL, source TEXT NOT NULL,
        incident INTEGER NOT NULL, reported TEXT NOT NULL, last REAL NOT NULL, due REAL, changes INTEGER NOT NULL,
        PRIMARY KEY (channel, event, source)) WITHOUT ROWID""",
    """CREATE TABLE mutes (target TEXT PRIMARY KEY, reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL,
        until REAL NOT NULL) WITHOUT ROWID""",
)

_CAUSES = (
    "ALTER TABLE troubles RENAME TO former_troubles",
    """CREATE TABLE troubles (event TEXT NOT NULL, key TEXT NOT NULL, location TEXT NOT NULL, source TEXT NOT NULL,
        reason TEXT NOT NULL, message TEXT NOT NULL, since REAL NOT NULL, once INTEGER NOT NULL, cause TEXT NOT NULL,
        PRIMARY KEY (event, key, location, cause)) WITHOUT ROWID""",
    """INSERT INTO troubles SELECT *, CASE event WHEN 'run' THEN '' WHEN 'daemon' THEN reason
        ELSE reason || '@' || source END FROM former_troubles""",
    "DROP TABLE former_troubles",
    "CREATE INDEX troubles_keys ON troubles (key)",
    "CREATE INDEX troubles_causes ON troubles (event, cause)",
    "CREATE INDEX troubles_locations ON troubles (event, location)",
    "DROP TABLE trouble_groups",
    """CREATE TABLE trouble_groups (channel TEXT NOT NULL, event TEXT NOT NULL, cause TEXT NOT NULL,
        source TEXT NOT NULL, incident INTEGER NOT NULL, reported TEXT NOT NULL, severity TEXT NOT NULL,
        last REAL NOT NULL, due REAL, changes INTEGER NOT NULL, is_inhibited INTEGER NOT NULL,
        PRIMARY KEY (channel, event, cause)) WITHOUT ROWID""",
    "CREATE INDEX trouble_groups_due ON trouble_groups (due) WHERE due IS NOT NULL",
    # Messages had other words of severity, which no reader knows any more.
    "DELETE FROM deliveries",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_UNREADY, _TIMELINES, _REFUSALS, _NOTIFICATIONS, _CAUSES)
"""The statements from version 1 to 2, from 2 to 3, and so on; a released migration is never edited."""


def schema_versions() -> tuple[tuple[str, ...], ...]:
    """The statements to each version from the one before; those of version 1 make a new file."""
    return (_first_version(), *MIGRATIONS)


@functools.cache
def _first_version() -> tuple[str, ...]:
    return tuple(SCHEMA_FILE.read_text().split(";\n\n")[:-1])
