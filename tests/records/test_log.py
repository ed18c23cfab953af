"""The write-ahead log: checkpoints that delay no reader, and snapshots of one moment while others write."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from reconciler.errors import RecordsError
from reconciler.records.database import CHECKPOINT_CHANGES
from reconciler.records.store import Records
from reconciler.records.tables.commands import CommandStage, NewCommand


def blobs_in(path: Path, tmp_path: Path) -> int:
    """How many there are in the file alone, without its log; copied by another process, or our locks would be lost."""
    alone = tmp_path / "alone.sqlite"
    subprocess.run(["cp", path, alone], check=True)
    with closing(sqlite3.connect(alone)) as copy:
        there = copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'blobs'").fetchone()
        return int(copy.execute("SELECT count(*) FROM blobs").fetchone()[0]) if there else 0


def hold(records: Records) -> None:
    records.pins.put("main", "c1", "HEAD", "", "ada")


def is_pinned(records: Records) -> bool:
    return records.pins.get("main") is not None


def test_settling_brings_much_that_was_written_into_the_file(path: Path, records: Records, tmp_path: Path) -> None:
    records.documents.put_many([("first", b"one")])
    assert not records.needs_checkpoint()
    few = blobs_in(path, tmp_path)
    records.documents.put_many([(f"{number:040x}", b"more") for number in range(CHECKPOINT_CHANGES)])
    assert records.needs_checkpoint()
    records.checkpoint()
    assert not records.needs_checkpoint()
    assert (few, blobs_in(path, tmp_path)) == (0, CHECKPOINT_CHANGES + 1)


def test_a_checkpoint_waits_for_no_reader_and_is_completed_later(path: Path, records: Records, tmp_path: Path) -> None:
    many = [(f"{number:040x}", b"more") for number in range(CHECKPOINT_CHANGES)]
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM blobs").fetchone()
        records.documents.put_many(many)
        records.checkpoint()
        during = blobs_in(path, tmp_path)
    records.documents.put_many(many)
    records.checkpoint()
    assert (during, blobs_in(path, tmp_path)) == (0, CHECKPOINT_CHANGES)


def test_a_snapshot_reads_one_moment_while_others_write(path: Path, records: Records) -> None:
    with closing(Records.open(path)) as other, records.snapshot():
        assert not is_pinned(records)
        hold(other)
        assert not is_pinned(records)
    assert is_pinned(records)


def test_a_write_in_a_snapshot_is_committed_and_moves_the_snapshot(path: Path, records: Records) -> None:
    with closing(Records.open(path)) as other, records.snapshot():
        assert not is_pinned(records)
        hold(other)
        records.documents.put_many([("first", b"one")])
        assert other.documents.get("first") == b"one"
        assert is_pinned(records)
        records.pins.remove("main")
        assert not is_pinned(other)


def test_a_write_that_fails_in_a_snapshot_leaves_it_readable(records: Records) -> None:
    with records.snapshot():
        with suppress(ZeroDivisionError), records.transaction():
            hold(records)
            _ = 1 / 0
        assert not is_pinned(records)
        with records.snapshot(), records.transaction(), records.snapshot():
            hold(records)
    assert is_pinned(records)


def test_a_snapshot_that_ends_amid_another_threads_transaction_commits_no_half_of_it(records: Records) -> None:
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        with suppress(ZeroDivisionError), records.transaction():
            hold(records)
            begun.set()
            ended.wait(60)
            _ = 1 / 0

    writer = threading.Thread(target=write)
    with records.snapshot():
        writer.start()
        begun.wait(60)
    ended.set()
    writer.join(60)
    assert not is_pinned(records)
    hold(records)
    assert is_pinned(records)


def test_records_closed_in_a_snapshot_raise_the_usual_error(records: Records) -> None:
    with pytest.raises(RecordsError), records.snapshot():
        records.close()


def has(path: Path, text: bytes) -> bool:
    """Whether a file of the records contains ``text``; read by another process, or our locks would be lost."""
    files = [str(each) for each in path.parent.glob(f"{path.name}*")]
    return subprocess.run(["grep", "-q", "-a", text, *files], check=False).returncode == 0


def test_dropped_secrets_are_in_no_file_once_the_log_is_emptied(path: Path, records: Records) -> None:
    secret = b"sekret" * 20_000
    records.secret_data.put("secret/old", "1", secret)
    records.secret_data.put("secret/old", "1", secret)
    name = records.commands.add(NewCommand("workload/shop/job", "here", "run", {"value": secret.decode()}, "ada"))
    assert records.commands.start(name)
    records.checkpoint()
    assert has(path, b"sekretsekret")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM blobs").fetchone()
        assert records.secret_data.sweep() == 1
        records.commands.finish(name, CommandStage.COMPLETED, ["done"], {"value": "***"})
        records.checkpoint()
        assert records.needs_checkpoint(), "another process reads the log"
    records.checkpoint()
    assert not records.needs_checkpoint()
    assert not has(path, b"sekretsekret")


def test_a_command_without_secrets_empties_no_log(records: Records) -> None:
    name = records.commands.add(NewCommand("workload/shop/job", "here", "run", {"location": "here"}, "ada"))
    records.commands.finish(name, CommandStage.COMPLETED, ["done"], {"location": "here"})
    assert not records.needs_checkpoint()
