"""The file as a whole: made, reopened, migrated, refused, killed, full, copied."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.errors import DiskFull, RecordsError
from reconciler.model.resource import Dependency, Reference
from reconciler.records.database import Database, migrate_schema
from reconciler.records.migrations import schema_versions
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.journal import NewStep
from reconciler.records.tables.sources import SourceRow
from tests.records.samples import entry, event, failure, record


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_written_rows_are_there_after_a_restart(path: Path) -> None:
    row = SourceRow("main", "main", "c1", "t1", "all", "Ann", "Say hello", 99)
    references = (
        Reference("gvc/shop", "/gvc", Dependency.HEALTHY),
        Reference("/org/x/secret/y", "/spec", Dependency.NONE),
    )
    entry = DesiredEntry("workload/shop/api", "main", "shop/api.yaml", 2, 17, "b1", "d1", references)
    records = Records.open(path)
    key = records.secret_key
    records.sources.put(row)
    records.desired.replace("main", [], [entry])
    records.applied.put(record("workload/shop/api", "aws"))
    records.failures.put(failure("workload/shop/api", "aws"))
    ids = records.journal.begin(4, [NewStep("workload/shop/api", "aws", "create", b"\x01")])
    records.events.append_many([event("workload/shop/api")])
    records.status_queue.add_many("main", ["workload/shop/api"])
    records.close()
    again = Records.open(path)
    assert again.secret_key == key
    assert len(key) == 32
    assert again.sources.get("main") == row
    assert again.desired.get("workload/shop/api") == entry
    assert again.applied.get("workload/shop/api") == (record("workload/shop/api", "aws"),)
    assert again.failures.get("workload/shop/api") == (failure("workload/shop/api", "aws"),)
    assert [(r.id, r.run, r.key, r.location, r.action, r.step) for r in again.journal.open()] == [
        (ids[0], 4, "workload/shop/api", "aws", "create", b"\x01")
    ]
    assert [e.message for e in again.events.list()] == ["as asked"]
    assert again.status_queue.take("main").keys == ["workload/shop/api"]
    again.close()


def test_only_the_owner_may_read_the_file_and_what_sqlite_puts_beside_it(path: Path, records: Records) -> None:
    records.status_queue.add_many("main", ["gvc/shop"])
    assert mode(path.parent) == 0o700
    assert {file.name: mode(file) for file in path.parent.iterdir()} == {
        path.name: 0o600,
        f"{path.name}-wal": 0o600,
        f"{path.name}-shm": 0o600,
    }


def test_every_commit_is_synced_to_the_disk(records: Records) -> None:
    assert records._database.value("PRAGMA synchronous") == 2
    assert records._database.value("PRAGMA journal_mode") == "wal"


def test_only_what_can_be_done_again_is_not_synced_and_what_follows_it_is(records: Records) -> None:
    def level() -> int:
        return int(records._database.value("PRAGMA synchronous"))

    with records.repeatable():
        records.status_queue.add_many("main", ["gvc/shop"])
        assert level() == 1
    assert level() == 2
    with records.transaction(), records.repeatable():
        assert level() == 2


def test_records_of_a_newer_program_are_refused(path: Path) -> None:
    Records.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {len(schema_versions()) + 1}")
    raw.close()
    with pytest.raises(RecordsError, match="newer reconciler"):
        Records.open(path)
    with pytest.raises(RecordsError, match="newer reconciler"):
        Records.open(path, read_only=True)


FIRST = ("CREATE TABLE fruit (name TEXT)", "INSERT INTO fruit VALUES ('apple')")
SECOND = ("ALTER TABLE fruit ADD COLUMN colour TEXT NOT NULL DEFAULT 'green'",)


def test_records_of_an_older_program_are_brought_forward(path: Path) -> None:
    Database.open(path, [FIRST]).close()
    database = Database.open(path, [FIRST, SECOND])
    assert database.all("SELECT * FROM fruit") == [("apple", "green")]
    assert database.value("PRAGMA user_version") == 2
    database.close()


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    database = Database.open(path, [FIRST])
    with pytest.raises(RecordsError):
        migrate_schema(database, [FIRST, SECOND, ("INSERT INTO vegetables VALUES (1)",)])
    assert database.all("SELECT * FROM fruit") == [("apple",)]
    assert database.value("PRAGMA user_version") == 1
    database.close()


def test_an_older_file_is_not_read_without_being_migrated(path: Path) -> None:
    Database.open(path, [FIRST]).close()
    with pytest.raises(RecordsError, match="start the daemon"):
        Database.open(path, [FIRST, SECOND], read_only=True)


def test_records_that_are_not_there_are_not_made_by_reading(path: Path) -> None:
    with pytest.raises(RecordsError, match="nothing has been applied"):
        Records.open(path, read_only=True)
    assert not path.parent.exists()


def test_a_reader_sees_what_a_writer_commits_and_notices_it(path: Path, records: Records) -> None:
    reader = Records.open(path, read_only=True)
    before = reader.data_version()
    assert reader.data_version() == before
    with records.transaction():
        records.applied.put(record("gvc/shop"))
        assert not reader.applied.exists("gvc/shop")
    assert reader.applied.exists("gvc/shop")
    assert reader.data_version() != before
    with pytest.raises(RecordsError, match="reading only"):
        reader.applied.put(record("gvc/shop"))
    reader.close()


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from reconciler.errors import RecordsError
from reconciler.records.store import Records
if os.geteuid() == 0:
    os.setuid(65534)
try:
    Records.open(Path(sys.argv[1]), read_only=True)
except RecordsError as error:
    print(error)
"""


def test_a_user_without_permission_is_advised_which_user_to_become(path: Path, records: Records) -> None:
    path.parent.chmod(0)
    try:
        result = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER, path], capture_output=True, text=True, check=True
        )
    finally:
        path.parent.chmod(0o700)
    assert "run the command as the user of the daemon or as root" in result.stdout


def test_a_file_that_is_something_else_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"once upon a time " * 1000)
    with pytest.raises(RecordsError, match="not a database of the reconciler"):
        Records.open(path)


IN_MID_TRANSACTION = """
import sys
from pathlib import Path
from reconciler.records.store import Records
records = Records.open(Path(sys.argv[1]))
records.status_queue.add_many("main", ["gvc/committed"])
records._database.write("PRAGMA cache_size = 10")  # so that pages are spilled into the log before the commit
with records.transaction():
    records.status_queue.add_many("main", [f"gvc/lost-{n}" for n in range(100000)])
    print("in it", flush=True)
    sys.stdin.read()
"""


def test_a_kill_in_mid_transaction_leaves_the_last_committed_state(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", IN_MID_TRANSACTION, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdin
    assert child.stdout.readline() == "in it\n"
    assert path.with_name(f"{path.name}-wal").stat().st_size > 1 << 20  # part of it had reached the file
    os.kill(child.pid, signal.SIGKILL)
    child.wait(60)
    child.stdin.close()
    child.stdout.close()
    records = Records.open(path)
    assert records.status_queue.take("main").keys == ["gvc/committed"]
    records.status_queue.add_many("main", ["gvc/next"])
    records.close()


def test_an_inner_transaction_joins_the_outer(records: Records) -> None:
    def write_both_and_fail() -> None:
        with records.transaction():
            with records.transaction():
                records.applied.put(record("gvc/inner"))
            records.applied.put(record("gvc/outer"))
            raise KeyError("no")

    with pytest.raises(KeyError):
        write_both_and_fail()
    assert not records.applied.exists("gvc/inner")
    assert not records.applied.exists("gvc/outer")


def swallow_a_failure_within_a_transaction(records: Records) -> None:
    with records.transaction():
        records.applied.put(record("gvc/before"))
        with pytest.raises(RecordsError):
            records._database.write("INSERT INTO nowhere VALUES (1)")
        records.applied.put(record("gvc/after"))


def test_an_error_that_was_swallowed_does_not_commit_the_half(records: Records) -> None:
    with pytest.raises(RecordsError, match="earlier part"):
        swallow_a_failure_within_a_transaction(records)
    assert records.applied.inventory("main") == 0
    records.applied.put(record("gvc/later"))
    assert records.applied.inventory("main") == 1


def fill(records: Records) -> None:
    for n in range(1000):
        with records.transaction():
            records.status_queue.add_many("main", [f"gvc/g{n}"])
            records.documents.put_many([(str(n), bytes(20_000))])


def test_a_full_disk_is_reported_loses_nothing_and_writes_go_on_when_there_is_room(
    path: Path, records: Records
) -> None:
    records._database.write(f"PRAGMA max_page_count = {records._database.value('PRAGMA page_count') + 20}")
    with pytest.raises(DiskFull, match="the disk is full") as caught:
        fill(records)
    assert caught.value.reason == "DiskFull"
    keys = records.status_queue.take("main").keys
    assert 0 < len(keys) < 20
    assert len(records.documents.get_many(map(str, range(1000)))) == len(keys)
    records._database.write("PRAGMA max_page_count = 1000000")
    records.status_queue.add_many("main", ["gvc/after"])
    records.close()
    again = Records.open(path)
    assert again.status_queue.count("main") == len(keys) + 1
    again.close()


def test_two_writers_wait_for_each_other(path: Path, records: Records) -> None:
    other = Records.open(path)
    for n in range(20):
        records.requests.add("sync", {"n": n}, "ann")
        other.requests.add("sync", {"n": n}, "bob")
    assert len(records.requests.open()) == len(other.requests.open()) == 40
    other.close()


def test_a_backup_is_whole_private_and_taken_while_others_write(path: Path, records: Records, tmp_path: Path) -> None:
    to = tmp_path / "copy.sqlite"
    to.write_bytes(b"an older copy")
    records.applied.put(record("gvc/shop"))
    reader = Records.open(path, read_only=True)
    with records.transaction():
        records.applied.put(record("gvc/not-yet"))
        reader.backup(to)
    reader.close()
    assert mode(to) == 0o600
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("copy")] == ["copy.sqlite"]
    copy = Records.open(to)
    assert copy.applied.get("gvc/shop") == (record("gvc/shop"),)
    assert not copy.applied.exists("gvc/not-yet")
    assert copy.secret_key == records.secret_key
    copy.close()


def test_a_backup_that_cannot_be_written_leaves_the_older_one(records: Records, tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="cannot be written"):
        records.backup(tmp_path / "nowhere" / "copy.sqlite")


def test_the_log_beside_the_file_stays_bounded(path: Path, records: Records) -> None:
    for _ in range(160):
        records.documents.put_many([("same", bytes(1 << 20))])
    assert path.with_name(f"{path.name}-wal").stat().st_size < 80 << 20


def test_records_in_memory_are_the_same_without_a_file() -> None:
    records = Records.open(None)
    records.desired.replace("main", [], [entry("gvc/shop", "shop/gvc.yaml")])
    assert records.path is None
    assert records.desired.count("main") == 1
    records.close()


def test_records_may_be_closed_while_rows_are_read(path: Path) -> None:
    records = Records.open(path)
    rows = records._database.stream("SELECT name FROM sqlite_master")
    next(rows)
    records.close()
    rows.close()  # type: ignore[attr-defined]
