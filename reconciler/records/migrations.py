"""The list of migrations that create the tables; a released migration is never edited, only extended by another."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

SCHEMA_FILE = Path(__file__).with_name("schema.sql")
"""What all migrations together create, written by ``python -m docs.generate``: a new file starts with it."""

WORST_BEFORE = """(SELECT health FROM applied WHERE key = {row}.key ORDER BY CASE health
    WHEN 'Unhealthy' THEN 0 WHEN 'Unknown' THEN 1 WHEN 'Loading' THEN 2 WHEN 'Deleting' THEN 3 ELSE 4 END LIMIT 1)"""
"""The worst health of a resource in versions without Recorded."""

WORST = """(SELECT health FROM applied WHERE key = {row}.key ORDER BY CASE health WHEN 'Unhealthy' THEN 0
    WHEN 'Unknown' THEN 1 WHEN 'Loading' THEN 2 WHEN 'Deleting' THEN 3 WHEN 'Recorded' THEN 4 ELSE 5 END LIMIT 1)"""
"""The health of a resource is the worst of its locations (``applied.WORST_FIRST``; a test compares the two)."""

GROUND = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE sources (name TEXT PRIMARY KEY, ref TEXT NOT NULL, commit_id TEXT NOT NULL, tree_id TEXT NOT NULL,
        selection TEXT NOT NULL, author TEXT NOT NULL, subject TEXT NOT NULL, time INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE blobs (oid TEXT PRIMARY KEY, parsed BLOB NOT NULL)",
)

DESIRED = (
    """CREATE TABLE desired (key TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, directory TEXT NOT NULL,
        position INTEGER NOT NULL, line INTEGER NOT NULL, blob TEXT NOT NULL, digest TEXT NOT NULL,
        is_gvc INTEGER NOT NULL, links BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX desired_path ON desired (source, path)",
    "CREATE INDEX desired_gvc ON desired (source, directory) WHERE is_gvc",
    "CREATE TABLE referrers (target TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (target, key)) WITHOUT ROWID",
    "CREATE TABLE desired_tally (source TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TRIGGER desired_added AFTER INSERT ON desired BEGIN
        INSERT INTO desired_tally VALUES (new.source, 1) ON CONFLICT DO UPDATE SET n = n + 1; END""",
    """CREATE TRIGGER desired_removed AFTER DELETE ON desired BEGIN
        UPDATE desired_tally SET n = n - 1 WHERE source = old.source; END""",
    """CREATE TRIGGER desired_moved AFTER UPDATE OF source ON desired WHEN old.source <> new.source BEGIN
        UPDATE desired_tally SET n = n - 1 WHERE source = old.source;
        INSERT INTO desired_tally VALUES (new.source, 1) ON CONFLICT DO UPDATE SET n = n + 1; END""",
)

APPLIED = (
    """CREATE TABLE applied (id INTEGER PRIMARY KEY, key TEXT NOT NULL, location TEXT NOT NULL, source TEXT NOT NULL,
        digest TEXT NOT NULL, version INTEGER NOT NULL, engine TEXT NOT NULL, health TEXT NOT NULL,
        alias TEXT NOT NULL, revision TEXT NOT NULL, applied_at REAL NOT NULL, body BLOB NOT NULL, state BLOB NOT NULL,
        UNIQUE (key, location))""",
    "CREATE INDEX applied_scan ON applied (key, location, source, digest, engine)",
    "CREATE TABLE seals (key TEXT, digest TEXT, seal BLOB NOT NULL, PRIMARY KEY (key, digest)) WITHOUT ROWID",
)

INVENTORY = (
    """CREATE TABLE inventory (key TEXT PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, health TEXT NOT NULL)
        WITHOUT ROWID""",
    """CREATE TABLE tally (source TEXT, kind TEXT, health TEXT, n INTEGER NOT NULL, PRIMARY KEY (source, kind, health))
        WITHOUT ROWID""",
    f"""CREATE TRIGGER applied_added AFTER INSERT ON applied BEGIN
        INSERT INTO inventory VALUES (new.key, new.source, substr(new.key, 1, instr(new.key, '/') - 1), new.health)
        ON CONFLICT DO UPDATE SET source = excluded.source, health = {WORST_BEFORE.format(row="new")}; END""",
    f"""CREATE TRIGGER applied_changed AFTER UPDATE OF source, health ON applied
        WHEN old.source <> new.source OR old.health <> new.health BEGIN
        UPDATE inventory SET source = new.source, health = {WORST_BEFORE.format(row="new")} WHERE key = new.key; END""",
    f"""CREATE TRIGGER applied_removed AFTER DELETE ON applied BEGIN
        DELETE FROM inventory WHERE key = old.key AND NOT EXISTS (SELECT 1 FROM applied WHERE key = old.key);
        UPDATE inventory SET health = {WORST_BEFORE.format(row="old")} WHERE key = old.key; END""",
    """CREATE TRIGGER inventory_added AFTER INSERT ON inventory BEGIN
        INSERT INTO tally VALUES (new.source, new.kind, new.health, 1) ON CONFLICT DO UPDATE SET n = n + 1; END""",
    """CREATE TRIGGER inventory_removed AFTER DELETE ON inventory BEGIN
        UPDATE tally SET n = n - 1 WHERE source = old.source AND kind = old.kind AND health = old.health; END""",
    """CREATE TRIGGER inventory_changed AFTER UPDATE ON inventory
        WHEN old.source <> new.source OR old.health <> new.health BEGIN
        UPDATE tally SET n = n - 1 WHERE source = old.source AND kind = old.kind AND health = old.health;
        INSERT INTO tally VALUES (new.source, new.kind, new.health, 1) ON CONFLICT DO UPDATE SET n = n + 1; END""",
)

WORK = (
    """CREATE TABLE failures (key TEXT, location TEXT, reason TEXT NOT NULL, message TEXT NOT NULL,
        attempts INTEGER NOT NULL, since REAL NOT NULL, next_attempt REAL NOT NULL, retry INTEGER NOT NULL,
        PRIMARY KEY (key, location)) WITHOUT ROWID""",
    "CREATE INDEX failures_due ON failures (next_attempt) WHERE retry",
    """CREATE TABLE journal (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, key TEXT NOT NULL, location TEXT NOT NULL,
        action TEXT NOT NULL, step BLOB NOT NULL)""",
    # AUTOINCREMENT: a cleared number must never be reused, or a key that was added meanwhile would be lost.
    """CREATE TABLE pending (seq INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, key TEXT NOT NULL,
        UNIQUE (source, key))""",
    """CREATE TABLE events (id INTEGER PRIMARY KEY, at REAL NOT NULL, run INTEGER NOT NULL, key TEXT NOT NULL,
        location TEXT NOT NULL, type TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL)""",
    "CREATE INDEX events_key ON events (key)",
    """CREATE TABLE runs (id INTEGER PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, reason TEXT NOT NULL,
        started REAL NOT NULL, finished REAL, outcome TEXT NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '',
        counts BLOB NOT NULL DEFAULT x'7b7d', message TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX runs_source ON runs (source)",
)

OPERATORS = (
    """CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, args BLOB NOT NULL,
        "by" TEXT NOT NULL, at REAL NOT NULL, taken REAL, done REAL, result BLOB)""",
    "CREATE INDEX requests_open ON requests (id) WHERE done IS NULL",
    """CREATE TABLE approvals (digest TEXT PRIMARY KEY, "by" TEXT NOT NULL, at REAL NOT NULL, expires REAL)
        WITHOUT ROWID""",
    "CREATE TABLE plans (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, held TEXT NOT NULL)",
    "CREATE INDEX plans_held ON plans (held)",
    """CREATE TABLE conditions (scope TEXT, type TEXT, status INTEGER NOT NULL, reason TEXT NOT NULL,
        message TEXT NOT NULL, since REAL NOT NULL, PRIMARY KEY (scope, type)) WITHOUT ROWID""",
)

OPERATIONS = (
    """CREATE TABLE suspensions (target TEXT PRIMARY KEY, reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL,
        until REAL) WITHOUT ROWID""",
    """CREATE TABLE pins (source TEXT PRIMARY KEY, commit_id TEXT NOT NULL, expression TEXT NOT NULL,
        reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID""",
    'CREATE TABLE orphans (key TEXT PRIMARY KEY, "by" TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID',
    "ALTER TABLE runs ADD COLUMN author TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN subject TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE drifts (key TEXT, location TEXT, source TEXT NOT NULL, since REAL NOT NULL, packed BLOB NOT NULL,
        fought INTEGER NOT NULL, PRIMARY KEY (key, location)) WITHOUT ROWID""",
    "CREATE TABLE heals (key TEXT NOT NULL, location TEXT NOT NULL, digest TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE INDEX heals_key ON heals (key, location, digest)",
    "DROP INDEX applied_scan",
    "CREATE INDEX applied_scan ON applied (key, location, source, digest, engine, version)",
)

HOST = (
    """CREATE TABLE restarts (key TEXT PRIMARY KEY, count INTEGER NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL)
        WITHOUT ROWID""",
)

FOLLOWED = (
    """CREATE TABLE followed (source TEXT NOT NULL, ref TEXT NOT NULL, commit_id TEXT NOT NULL,
        PRIMARY KEY (source, ref)) WITHOUT ROWID""",
    # A source that is pinned to a commit has that commit as its ref; its earlier branch is unknown.
    "INSERT INTO followed SELECT name, 'refs/heads/' || ref, commit_id FROM sources WHERE ref <> commit_id",
)

RECORDED = (
    "DROP TRIGGER applied_added",
    "DROP TRIGGER applied_changed",
    "DROP TRIGGER applied_removed",
    f"""CREATE TRIGGER applied_added AFTER INSERT ON applied BEGIN
        INSERT INTO inventory VALUES (new.key, new.source, substr(new.key, 1, instr(new.key, '/') - 1), new.health)
        ON CONFLICT DO UPDATE SET source = excluded.source, health = {WORST.format(row="new")}; END""",
    f"""CREATE TRIGGER applied_changed AFTER UPDATE OF source, health ON applied
        WHEN old.source <> new.source OR old.health <> new.health BEGIN
        UPDATE inventory SET source = new.source, health = {WORST.format(row="new")} WHERE key = new.key; END""",
    f"""CREATE TRIGGER applied_removed AFTER DELETE ON applied BEGIN
        DELETE FROM inventory WHERE key = old.key AND NOT EXISTS (SELECT 1 FROM applied WHERE key = old.key);
        UPDATE inventory SET health = {WORST.format(row="old")} WHERE key = old.key; END""",
    """UPDATE applied SET health = 'Recorded'
        WHERE engine = 'recorded' AND location <> '' AND health = 'Healthy'""",
    """UPDATE applied SET state = CAST(json_set(CAST(state AS TEXT), '$.workload.health', 'Recorded',
        '$.workload.currentReplicaCount', 0, '$.status.ready', json('false'), '$.status.versions[0].ready',
        json('false'), '$.status.versions[0].containers', (SELECT json_group_object(key, json_set(value, '$.ready',
        json('false'), '$.resources.replicasReady', 0))
        FROM json_each(CAST(applied.state AS TEXT), '$.status.versions[0].containers'))) AS BLOB)
        WHERE health = 'Recorded' AND json_extract(CAST(state AS TEXT), '$.workload.currentReplicaCount') > 0""",
    """INSERT OR IGNORE INTO pending (source, key) SELECT DISTINCT source, key FROM applied
        WHERE health = 'Recorded' OR (key >= 'gvc/' AND key < 'gvc0')""",
)
"""Resources of the recorded engine become Recorded and not ready; the status files follow."""

DELETIONS = (
    """CREATE TABLE deletions (source TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (source, key))
        WITHOUT ROWID""",
)

RENAMED = {
    "ClockSteady": "ClockStable",
    "DriftFight": "DriftConflict",
    "DriftOver": "DriftResolved",
    "HostTrouble": "WorkloadError",
    "LimitsNotSet": "LimitsFailed",
    "LocationSeen": "LocationReachable",
    "LocationUnseen": "LocationUnreachable",
    "LogsNotStored": "LogStorageFailed",
    "NoMoreProcesses": "ProcessLimitReached",
    "NoRights": "PermissionDenied",
    "NotAlive": "LivenessFailed",
    "NotEnded": "KillFailed",
    "NotRemoved": "RemovalFailed",
    "NotStarted": "StartFailed",
    "PushRaced": "PushConflict",
    "SourceGone": "SourceNotFound",
    "StateFailed": "StateWriteFailed",
    "VersionGone": "TemplateNotFound",
}
"""Former reasons that have no other meaning, so that they can be replaced in every quotation."""


def _replaced(table: str, column: str, pairs: Iterable[tuple[str, str]], where: str = "true") -> Iterator[str]:
    """Statements that replace texts within ``column``; JSON in a blob stays a blob.

    Each pair has its own statement, since SQLite's parser limits the nesting of calls.
    """
    for old, new in pairs:
        text = f"replace(CAST({column} AS TEXT), {old!r}, {new!r})"
        value = f"CASE typeof({column}) WHEN 'blob' THEN CAST({text} AS BLOB) ELSE {text} END"
        yield f"UPDATE {table} SET {column} = {value} WHERE {where} AND instr(CAST({column} AS TEXT), {old!r})"


def _reasons(table: str) -> str:
    cases = " ".join(f"WHEN {old!r} THEN {new!r}" for old, new in RENAMED.items())
    return f"UPDATE {table} SET reason = CASE reason {cases} ELSE reason END"


_QUOTED = [(form.format(old), form.format(new)) for old, new in RENAMED.items() for form in ("{}: ", "({})")]
"""The forms in which messages quote reasons."""

# In encoded JSON, quotation marks in strings are escaped, so that a member is never found inside a string.
_MEMBERS = [(f'"reason":"{old}"', f'"reason":"{new}"') for old, new in RENAMED.items()]
_ANSWERS = [('"outcome":"moved"', '"outcome":"plan_changed"'), ('"reason":"PlanMoved"', '"reason":"PlanChanged"')]

_ON_HOST = "id IN (SELECT id FROM applied INDEXED BY applied_scan WHERE engine = 'host' AND location <> '')"
_OLD_REASONS = ", ".join(map(repr, RENAMED))
_RESTATED = f"""SELECT scope FROM conditions WHERE type = 'Waiting' AND reason = 'Kept'
    UNION SELECT key FROM failures WHERE reason IN ({_OLD_REASONS})
    UNION SELECT key FROM drifts WHERE fought
    UNION SELECT key FROM applied WHERE {_ON_HOST}"""

REASONS = (
    f"""INSERT OR IGNORE INTO pending (source, key)
        SELECT source, key FROM inventory WHERE key IN ({_RESTATED})
        UNION SELECT source, key FROM desired WHERE key IN ({_RESTATED})""",
    "UPDATE conditions SET type = 'SettingsLoaded' WHERE type = 'SettingsTaken'",
    *(
        f"UPDATE conditions SET reason = {new!r} WHERE type = {kind!r} AND reason = {old!r}"
        for kind, old, new in (
            ("SettingsLoaded", "Taken", "Loaded"),
            ("SettingsLoaded", "Usage", "InvalidSettings"),
            ("SourceReachable", "Read", "Fetched"),
            ("SourceStale", "Fresh", "Fetched"),
            ("StatusPushed", "Written", "Pushed"),
            ("StatusStale", "Written", "Pushed"),
            ("Waiting", "Kept", "Retained"),
        )
    ),
    *(_reasons(table) for table in ("events", "failures", "conditions")),
    *(each for table in ("events", "failures", "conditions") for each in _replaced(table, "message", _QUOTED)),
    *_replaced("applied", "state", [*_MEMBERS, *_QUOTED], _ON_HOST),
    *_replaced("requests", "result", [*_MEMBERS, *_ANSWERS, *_QUOTED], "result IS NOT NULL"),
)
"""Reasons, and one condition type, get standard names; the status files follow."""

FIELDS = (
    "ALTER TABLE seals RENAME TO secret_data",
    "ALTER TABLE secret_data RENAME COLUMN seal TO data",
    "ALTER TABLE drifts RENAME COLUMN fought TO in_conflict",
    "ALTER TABLE requests RENAME COLUMN taken TO started",
    "DROP INDEX plans_held",
    "ALTER TABLE plans RENAME COLUMN held TO hold_digest",
    "CREATE INDEX plans_hold_digest ON plans (hold_digest)",
    *_replaced(
        "requests",
        "result",
        (
            ('"troubles":[', '"not_applied":['),
            ('"left_out":"', '"skipped_files":"'),
            ('"held":"', '"hold_digest":"'),
        ),
        "result IS NOT NULL",
    ),
)
"""Tables, columns and the reports of runs have the standard words too."""

TRAFFIC_HOLDS = (
    """CREATE TABLE traffic_holds (key TEXT PRIMARY KEY, reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL,
        until REAL NOT NULL) WITHOUT ROWID""",
)
"""Operators can hold the requests of a workload."""

COMMANDS = (
    """CREATE TABLE commands (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
        location TEXT NOT NULL, type TEXT NOT NULL, spec BLOB NOT NULL, stage TEXT NOT NULL, messages BLOB NOT NULL,
        "by" TEXT NOT NULL, created REAL NOT NULL, started REAL, finished REAL, precondition BLOB)""",
    "CREATE INDEX commands_open ON commands (number) WHERE stage IN ('pending', 'running')",
    "CREATE INDEX commands_key ON commands (key)",
)
"""Operators can request commands on resources."""

LOCATIONS = ("CREATE INDEX applied_at_location ON applied (location, engine, key, digest, version)",)
"""What is applied at a location is found without reading the rows of other locations."""

CREATED = (
    "ALTER TABLE applied ADD COLUMN created REAL NOT NULL DEFAULT 0",
    "UPDATE applied SET created = applied_at",
)
"""The API shows when a resource was created."""

SCHEDULES = (
    """CREATE TABLE schedules (location TEXT NOT NULL, key TEXT NOT NULL, schedule TEXT NOT NULL,
        checked INTEGER NOT NULL, PRIMARY KEY (location, key)) WITHOUT ROWID""",
)
"""The recorded engine records executions at scheduled times."""

CHANGES = (
    "CREATE TABLE changes (seq INTEGER PRIMARY KEY, key TEXT NOT NULL, before BLOB)",
    "CREATE TRIGGER changes_status AFTER INSERT ON pending BEGIN INSERT INTO changes (key) VALUES (new.key); END",
    """CREATE TRIGGER changes_added AFTER INSERT ON inventory BEGIN
        INSERT INTO changes (key, before) VALUES (new.key, x''); END""",
    """CREATE TRIGGER changes_edited AFTER UPDATE OF body ON applied WHEN old.body <> new.body BEGIN
        INSERT INTO changes (key, before) VALUES (old.key, old.body); END""",
    """CREATE TRIGGER changes_removed AFTER DELETE ON applied
        WHEN NOT EXISTS (SELECT 1 FROM applied WHERE key = old.key) BEGIN
        INSERT INTO changes (key, before) VALUES (old.key, old.body); END""",
    """CREATE TRIGGER changes_trimmed AFTER INSERT ON changes WHEN new.seq % 1000 = 0 BEGIN
        DELETE FROM changes WHERE seq <= new.seq - 20000; END""",
)
"""The API shows changes of resources to those who watch them."""

OUTBOX = (
    """CREATE TABLE outbox (id TEXT PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, at REAL NOT NULL,
        events BLOB NOT NULL) WITHOUT ROWID""",
)
"""A change through the API has its events also if the process ends between the commit and them."""

MIGRATIONS = (
    (*GROUND, *DESIRED, *APPLIED, *INVENTORY, *WORK, *OPERATORS),
    OPERATIONS,
    HOST,
    FOLLOWED,
    RECORDED,
    DELETIONS,
    REASONS,
    FIELDS,
    TRAFFIC_HOLDS,
    COMMANDS,
    LOCATIONS,
    CREATED,
    SCHEDULES,
    CHANGES,
    OUTBOX,
)


@functools.cache
def schema() -> tuple[str, ...]:
    """The statements that create the newest schema in a new file, ten times as fast as all migrations do."""
    return tuple(SCHEMA_FILE.read_text().split(";\n\n")[:-1])
