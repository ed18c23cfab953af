"""Records of an older version: `made_up` stands for the migration of a release to come."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.access import backup as access_backup
from reconciler.access.store import MIGRATIONS as ACCESS
from reconciler.errors import RecordsError
from reconciler.model.record import Health
from reconciler.records import migrations
from reconciler.records.backup import restore_backup, verify_backup
from reconciler.records.store import Records
from reconciler.records.tables.requests import requests_table
from tests.records.samples import entry, record

MADE_UP = (
    "ALTER TABLE applied ADD COLUMN colour TEXT NOT NULL DEFAULT 'green'",
    "CREATE TABLE colours (name TEXT PRIMARY KEY) WITHOUT ROWID",
    "INSERT INTO colours SELECT DISTINCT colour FROM applied",
)


NEXT = len(migrations.MIGRATIONS) + 2
"""The version that `made_up` leads to."""


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of version 1, with a record."""
    with monkeypatch.context() as former:
        former.setattr(migrations, "MIGRATIONS", ())
        with closing(Records.open(path)) as records:
            records.applied.put(record("workload/shop/web", "here"))
    return path


@pytest.fixture
def made_up(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This program is a later one, with one more migration."""
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, MADE_UP))


def fetch(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(sql).fetchall()


def test_a_new_file_is_created_by_the_first_version_and_the_migrations(made_up: None, path: Path) -> None:
    fresh = path.with_name("fresh.db")
    Records.open(fresh).close()
    Records.open(path).close()
    sql = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    assert set(fetch(fresh, sql)) == set(fetch(path, sql))
    assert fetch(fresh, "PRAGMA user_version") == [(NEXT,)]


def test_older_records_are_migrated_with_what_is_in_them(made_up: None, path: Path) -> None:
    with closing(Records.open(path)) as records:
        assert [str(each.key) for each in records.applied.items()] == ["workload/shop/web"]
    assert fetch(path, "SELECT key, colour FROM applied") == [("workload/shop/web", "green")]
    assert fetch(path, "SELECT name FROM colours") == [("green",)]
    assert fetch(path, "PRAGMA user_version") == [(NEXT,)]


def test_what_is_not_ready_in_older_records_is_found_after_the_migration(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        former.setattr(migrations, "MIGRATIONS", ())
        with closing(Records.open(path)) as records:
            records.desired.replace("main", [], [entry("gvc/a", "a.yaml"), entry("gvc/b", "b.yaml", digest="d2")])
            records.desired.replace("other", [], [entry("gvc/c", "c.yaml", source="other")])
            records.applied.put_many([record("gvc/a"), record("gvc/b"), record("gvc/d", health=Health.UNHEALTHY)])
    with closing(Records.open(path)) as records:
        assert records.list_unready() == ["gvc/b", "gvc/c", "gvc/d"]
        assert records.list_unready("other") == ["gvc/c"]


def test_troubles_in_older_records_have_a_cause_after_the_migration(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = next(number for number, steps in enumerate(migrations.MIGRATIONS) if "former_troubles" in steps[0])
    with monkeypatch.context() as former:
        former.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:before])
        Records.open(path).close()
    with closing(sqlite3.connect(path)) as older, older:
        rows = [
            ("daemon", "location/here", "", "", "LocationUnreachable", "no answer", 1.0, 0),
            ("health", "workload/shop/api", "here", "main", "Unhealthy", "it exits with 1", 2.0, 0),
            ("run", "source/main", "", "main", "failed", "no room", 3.0, 0),
        ]
        older.executemany("INSERT INTO troubles VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        older.execute("INSERT INTO trouble_groups VALUES ('ops', 'health', 'main', 0, '[]', 1.0, NULL, 0)")
    with closing(Records.open(path)) as records:
        found = [(trouble.reason, trouble.since, trouble.cause) for trouble in records.troubles.all()]
        assert found == [
            ("LocationUnreachable", 1.0, "LocationUnreachable"),
            ("Unhealthy", 2.0, "Unhealthy@main"),
            ("failed", 3.0, ""),
        ]
        assert records.troubles.due_groups(9.0) == []


def test_older_records_are_not_read_and_take_no_requests(made_up: None, path: Path) -> None:
    for open_it in (lambda: Records.open(path, read_only=True), lambda: requests_table(path, 1.0).__enter__()):
        with pytest.raises(RecordsError, match=f"must first be brought to {NEXT}: start the daemon or run"):
            open_it()
    assert fetch(path, "PRAGMA user_version") == [(1,)]


def test_an_older_backup_is_migrated(made_up: None, path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "older.sqlite"
    shutil.copy(path, backup)
    restore_backup(backup, path, force=True)
    assert verify_backup(backup).resources == 1
    assert fetch(path, "SELECT key, colour FROM applied") == [("workload/shop/web", "green")]


def test_older_credentials_in_a_backup_are_migrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state, restored, backup = tmp_path / "state", tmp_path / "restored", tmp_path / "backup.sqlite"
    restored.mkdir()
    Records.open(state / "records.sqlite").close()
    access_backup.Database.open(state / access_backup.FILE, ACCESS).close()
    with closing(Records.open(state / "records.sqlite")) as records:
        records.backup(backup)
    assert access_backup.add_to_backup(state, backup)
    monkeypatch.setattr(access_backup, "MIGRATIONS", (*ACCESS, ("ALTER TABLE keys ADD COLUMN colour TEXT",)))
    assert access_backup.restore_from_backup(backup, restored) is access_backup.Restored.RESTORED
    assert fetch(restored / access_backup.FILE, "SELECT colour FROM keys") == []
    assert fetch(restored / access_backup.FILE, "PRAGMA user_version") == [(len(ACCESS) + 1,)]
