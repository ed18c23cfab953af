CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE sources (name TEXT PRIMARY KEY, ref TEXT NOT NULL, commit_id TEXT NOT NULL, tree_id TEXT NOT NULL,
        selection TEXT NOT NULL, author TEXT NOT NULL, subject TEXT NOT NULL, time INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE blobs (oid TEXT PRIMARY KEY, parsed BLOB NOT NULL);

CREATE TABLE desired (key TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, directory TEXT NOT NULL,
        position INTEGER NOT NULL, line INTEGER NOT NULL, blob TEXT NOT NULL, digest TEXT NOT NULL,
        is_gvc INTEGER NOT NULL, links BLOB NOT NULL) WITHOUT ROWID;

CREATE INDEX desired_path ON desired (source, path);

CREATE INDEX desired_gvc ON desired (source, directory) WHERE is_gvc;

CREATE TABLE referrers (target TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (target, key)) WITHOUT ROWID;

CREATE TABLE desired_tally (source TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;

CREATE TRIGGER desired_added AFTER INSERT ON desired BEGIN
        INSERT INTO desired_tally VALUES (new.source, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;

CREATE TRIGGER desired_removed AFTER DELETE ON desired BEGIN
        UPDATE desired_tally SET n = n - 1 WHERE source = old.source; END;

CREATE TRIGGER desired_moved AFTER UPDATE OF source ON desired WHEN old.source <> new.source BEGIN
        UPDATE desired_tally SET n = n - 1 WHERE source = old.source;
        INSERT INTO desired_tally VALUES (new.source, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;

CREATE TABLE applied (id INTEGER PRIMARY KEY, key TEXT NOT NULL, location TEXT NOT NULL, source TEXT NOT NULL,
        digest TEXT NOT NULL, version INTEGER NOT NULL, engine TEXT NOT NULL, health TEXT NOT NULL,
        alias TEXT NOT NULL, revision TEXT NOT NULL, applied_at REAL NOT NULL, body BLOB NOT NULL, state BLOB NOT NULL,
        created REAL NOT NULL, UNIQUE (key, location));

CREATE TABLE secret_data (key TEXT, digest TEXT, data BLOB NOT NULL, PRIMARY KEY (key, digest)) WITHOUT ROWID;

CREATE TABLE inventory (key TEXT PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, health TEXT NOT NULL)
        WITHOUT ROWID;

CREATE TABLE tally (source TEXT, kind TEXT, health TEXT, n INTEGER NOT NULL, PRIMARY KEY (source, kind, health))
        WITHOUT ROWID;

CREATE TRIGGER inventory_added AFTER INSERT ON inventory BEGIN
        INSERT INTO tally VALUES (new.source, new.kind, new.health, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;

CREATE TRIGGER inventory_removed AFTER DELETE ON inventory BEGIN
        UPDATE tally SET n = n - 1 WHERE source = old.source AND kind = old.kind AND health = old.health; END;

CREATE TRIGGER inventory_changed AFTER UPDATE ON inventory
        WHEN old.source <> new.source OR old.health <> new.health BEGIN
        UPDATE tally SET n = n - 1 WHERE source = old.source AND kind = old.kind AND health = old.health;
        INSERT INTO tally VALUES (new.source, new.kind, new.health, 1) ON CONFLICT DO UPDATE SET n = n + 1; END;

CREATE TABLE failures (key TEXT, location TEXT, reason TEXT NOT NULL, message TEXT NOT NULL,
        attempts INTEGER NOT NULL, since REAL NOT NULL, next_attempt REAL NOT NULL, retry INTEGER NOT NULL,
        PRIMARY KEY (key, location)) WITHOUT ROWID;

CREATE INDEX failures_due ON failures (next_attempt) WHERE retry;

CREATE TABLE journal (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, key TEXT NOT NULL, location TEXT NOT NULL,
        action TEXT NOT NULL, step BLOB NOT NULL);

-- AUTOINCREMENT: a cleared number must never be reused, or a key that was added meanwhile would be lost.
CREATE TABLE pending (seq INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, key TEXT NOT NULL,
        UNIQUE (source, key));

CREATE TABLE events (id INTEGER PRIMARY KEY, at REAL NOT NULL, run INTEGER NOT NULL, key TEXT NOT NULL,
        location TEXT NOT NULL, type TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL);

CREATE INDEX events_key ON events (key);

CREATE TABLE runs (id INTEGER PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, reason TEXT NOT NULL,
        started REAL NOT NULL, finished REAL, outcome TEXT NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '',
        counts BLOB NOT NULL DEFAULT x'7b7d', message TEXT NOT NULL DEFAULT '',
        author TEXT NOT NULL DEFAULT '', subject TEXT NOT NULL DEFAULT '');

CREATE INDEX runs_source ON runs (source);

CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, args BLOB NOT NULL,
        "by" TEXT NOT NULL, at REAL NOT NULL, started REAL, done REAL, result BLOB);

CREATE INDEX requests_open ON requests (id) WHERE done IS NULL;

CREATE TABLE approvals (digest TEXT PRIMARY KEY, "by" TEXT NOT NULL, at REAL NOT NULL, expires REAL)
        WITHOUT ROWID;

CREATE TABLE plans (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, hold_digest TEXT NOT NULL);

CREATE TABLE conditions (scope TEXT, type TEXT, status INTEGER NOT NULL, reason TEXT NOT NULL,
        message TEXT NOT NULL, since REAL NOT NULL, PRIMARY KEY (scope, type)) WITHOUT ROWID;

CREATE TABLE suspensions (target TEXT PRIMARY KEY, reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL,
        until REAL) WITHOUT ROWID;

CREATE TABLE pins (source TEXT PRIMARY KEY, commit_id TEXT NOT NULL, expression TEXT NOT NULL,
        reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE orphans (key TEXT PRIMARY KEY, "by" TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE drifts (key TEXT, location TEXT, source TEXT NOT NULL, since REAL NOT NULL, packed BLOB NOT NULL,
        in_conflict INTEGER NOT NULL, PRIMARY KEY (key, location)) WITHOUT ROWID;

CREATE TABLE heals (key TEXT NOT NULL, location TEXT NOT NULL, digest TEXT NOT NULL, at REAL NOT NULL);

CREATE INDEX heals_key ON heals (key, location, digest);

CREATE INDEX applied_scan ON applied (key, location, source, digest, engine, version);

CREATE TABLE restarts (key TEXT PRIMARY KEY, count INTEGER NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL)
        WITHOUT ROWID;

CREATE TABLE followed (source TEXT NOT NULL, ref TEXT NOT NULL, commit_id TEXT NOT NULL,
        PRIMARY KEY (source, ref)) WITHOUT ROWID;

-- The health of a resource is the worst of its locations: applied.WORST_FIRST; a test compares the two.
CREATE TRIGGER applied_added AFTER INSERT ON applied BEGIN
        INSERT INTO inventory VALUES (new.key, new.source, substr(new.key, 1, instr(new.key, '/') - 1), new.health)
        ON CONFLICT DO UPDATE SET source = excluded.source, health =
        (SELECT health FROM applied WHERE key = new.key ORDER BY CASE health WHEN 'Unhealthy' THEN 0
            WHEN 'Unknown' THEN 1 WHEN 'Loading' THEN 2 WHEN 'Deleting' THEN 3 WHEN 'Recorded' THEN 4 ELSE 5 END
            LIMIT 1); END;

CREATE TRIGGER applied_changed AFTER UPDATE OF source, health ON applied
        WHEN old.source <> new.source OR old.health <> new.health BEGIN
        UPDATE inventory SET source = new.source, health =
        (SELECT health FROM applied WHERE key = new.key ORDER BY CASE health WHEN 'Unhealthy' THEN 0
            WHEN 'Unknown' THEN 1 WHEN 'Loading' THEN 2 WHEN 'Deleting' THEN 3 WHEN 'Recorded' THEN 4 ELSE 5 END
            LIMIT 1) WHERE key = new.key; END;

CREATE TRIGGER applied_removed AFTER DELETE ON applied BEGIN
        DELETE FROM inventory WHERE key = old.key AND NOT EXISTS (SELECT 1 FROM applied WHERE key = old.key);
        UPDATE inventory SET health =
        (SELECT health FROM applied WHERE key = old.key ORDER BY CASE health WHEN 'Unhealthy' THEN 0
            WHEN 'Unknown' THEN 1 WHEN 'Loading' THEN 2 WHEN 'Deleting' THEN 3 WHEN 'Recorded' THEN 4 ELSE 5 END
            LIMIT 1) WHERE key = old.key; END;

CREATE TABLE deletions (source TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (source, key))
        WITHOUT ROWID;

CREATE INDEX plans_hold_digest ON plans (hold_digest);

CREATE TABLE traffic_holds (key TEXT PRIMARY KEY, reason TEXT NOT NULL, "by" TEXT NOT NULL, at REAL NOT NULL,
        until REAL NOT NULL) WITHOUT ROWID;

CREATE TABLE commands (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
        location TEXT NOT NULL, type TEXT NOT NULL, spec BLOB NOT NULL, stage TEXT NOT NULL, messages BLOB NOT NULL,
        "by" TEXT NOT NULL, created REAL NOT NULL, started REAL, finished REAL, precondition BLOB);

CREATE INDEX commands_open ON commands (number) WHERE stage IN ('pending', 'running');

CREATE INDEX commands_key ON commands (key);

CREATE INDEX applied_at_location ON applied (location, engine, key, digest, version);

CREATE TABLE schedules (location TEXT NOT NULL, key TEXT NOT NULL, schedule TEXT NOT NULL,
        checked INTEGER NOT NULL, PRIMARY KEY (location, key)) WITHOUT ROWID;

CREATE TABLE changes (seq INTEGER PRIMARY KEY, key TEXT NOT NULL, before BLOB);

CREATE TRIGGER changes_status AFTER INSERT ON pending BEGIN INSERT INTO changes (key) VALUES (new.key); END;

CREATE TRIGGER changes_added AFTER INSERT ON inventory BEGIN
        INSERT INTO changes (key, before) VALUES (new.key, x''); END;

CREATE TRIGGER changes_edited AFTER UPDATE OF body ON applied WHEN old.body <> new.body BEGIN
        INSERT INTO changes (key, before) VALUES (old.key, old.body); END;

CREATE TRIGGER changes_removed AFTER DELETE ON applied
        WHEN NOT EXISTS (SELECT 1 FROM applied WHERE key = old.key) BEGIN
        INSERT INTO changes (key, before) VALUES (old.key, old.body); END;

CREATE TRIGGER changes_trimmed AFTER INSERT ON changes WHEN new.seq % 1000 = 0 BEGIN
        DELETE FROM changes WHERE seq <= new.seq - 20000; END;

CREATE TABLE outbox (id TEXT PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, at REAL NOT NULL,
        events BLOB NOT NULL) WITHOUT ROWID;

