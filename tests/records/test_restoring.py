"""Backups that replace the records: checked, swapped whole, and without an effect of old requests."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.errors import DiskFull, RecordsError, RefusedError
from reconciler.records.backup import restore_backup, summarize_records
from reconciler.records.store import Records
from reconciler.records.tables.commands import NewCommand
from reconciler.records.tables.journal import NewStep
from tests.records.samples import record
from tests.support.programs import small_disk

KILLED = """
import os, signal, sys
from pathlib import Path
from reconciler.records.backup import restore_backup

left = int(sys.argv[3])
def dies(event, _):
    global left
    if event in ("os.link", "os.rename", "os.remove", "open", "sqlite3.connect"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(dies)
restore_backup(Path(sys.argv[1]), Path(sys.argv[2]), force=True)
"""
"""Restores, and is killed at a chosen touch of the disk."""


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup with one GVC, and all that must not be acted upon later."""
    records = Records.open(tmp_path / "elsewhere.sqlite", clock_now=lambda: 500.0)
    records.applied.put(record("gvc/kept"))
    records.approvals.approve("main/abc", "ann")
    records.requests.add("apply", {}, "ann")
    records.commands.add(NewCommand("volumeset/shop/data", "here", "deleteVolume", {}, "ann"))
    records.journal.begin(1, [NewStep("gvc/kept", "", "delete", b"step")])
    records.suspensions.put("gvc/kept", "a look", "ann", None)
    records.runs.start("main", "main@sha1:1", "poll")
    records.backup(tmp_path / "backup.sqlite")
    records.close()
    return tmp_path / "backup.sqlite"


def keys(path: Path) -> list[str]:
    records = Records.open(path, read_only=True)
    try:
        return [str(each.key) for each in records.applied.items()]
    finally:
        records.close()


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def damaged(path: Path) -> Path:
    """``path`` with a page of zeros in the middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 8192 // 2 * 8192)
        file.write(bytes(8192))
    return path


def test_records_become_what_the_backup_holds(path: Path, records: Records, backup: Path) -> None:
    records.applied.put(record("gvc/new"))
    records.close()
    aside = restore_backup(backup, path, force=True)
    assert beside(path) == ["records.sqlite", "records.sqlite.before-restore"]
    assert keys(path) == ["gvc/kept"]
    assert aside is not None
    assert keys(aside) == ["gvc/new"]
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert summarize_records(path).resources == 1
    assert summarize_records(path).last_run == 500.0


def test_a_second_restore_does_not_overwrite_the_copy_of_the_first(path: Path, records: Records, backup: Path) -> None:
    records.applied.put(record("gvc/first"))
    records.close()
    first, second = restore_backup(backup, path, force=True), restore_backup(backup, path, force=True)
    assert first is not None
    assert second is not None
    assert (keys(first), keys(second)) == (["gvc/first"], ["gvc/kept"])
    again = restore_backup(first, path, force=True)
    assert (keys(path), again) == (["gvc/first"], path.with_name("records.sqlite.before-restore-3"))


def test_without_force_only_an_empty_place_is_filled(path: Path, records: Records, backup: Path) -> None:
    records.applied.put(record("gvc/new"))
    with pytest.raises(RefusedError, match=r"1 resources of the backup .* add --force"):
        restore_backup(backup, path, force=False)
    assert keys(path) == ["gvc/new"]
    records.close()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    assert restore_backup(backup, path, force=False) is None
    assert keys(path) == ["gvc/kept"]


def test_a_restore_drops_approvals_requests_commands_and_open_steps(path: Path, backup: Path) -> None:
    path.parent.mkdir()
    restore_backup(backup, path, force=False)
    restored = Records.open(path)
    assert restored.approvals.valid(0.0) == frozenset()
    assert restored.requests.open() == []
    assert restored.commands.open() == []
    assert restored.journal.open() == []
    assert restored.suspensions.get("gvc/kept") is not None
    restored.close()


def test_the_digests_of_secrets_stay_comparable(path: Path, records: Records, tmp_path: Path) -> None:
    key = records.secret_key
    records.backup(tmp_path / "copy")
    records.close()
    restore_backup(tmp_path / "copy", path, force=True)
    restored = Records.open(path)
    assert restored.secret_key == key
    restored.close()


def test_the_write_ahead_log_of_the_former_records_is_copied_too(path: Path, backup: Path) -> None:
    write = "import os, sys; from pathlib import Path; from reconciler.records.store import Records; "
    write += "from tests.records.samples import record; r = Records.open(Path(sys.argv[1])); "
    write += "r.applied.put(record('gvc/late')); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", write, str(path)], check=False).returncode == -signal.SIGKILL
    assert path.with_name(f"{path.name}-wal").stat().st_size > 0
    aside = restore_backup(backup, path, force=True)
    assert aside is not None
    assert keys(aside) == ["gvc/late"]
    assert keys(path) == ["gvc/kept"]


def test_a_copied_file_is_restored_with_the_log_beside_it(path: Path, records: Records, tmp_path: Path) -> None:
    records.applied.put(record("gvc/late"))
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{tmp_path / 'copied'}{ending}")
    records.close()
    restore_backup(tmp_path / "copied", path, force=True)
    assert keys(path) == ["gvc/late"]


def test_damaged_records_are_replaced_and_set_aside(path: Path, records: Records, backup: Path) -> None:
    records.close()
    path.write_bytes(b"not a database" * 1000)
    path.with_name(f"{path.name}-wal").write_bytes(b"a log of something")
    aside = restore_backup(backup, path, force=True)
    assert aside is not None
    assert aside.read_bytes().startswith(b"not a database")
    assert beside(path) == ["records.sqlite", "records.sqlite.before-restore", "records.sqlite.before-restore-wal"]
    assert keys(path) == ["gvc/kept"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda file: file.unlink(), "there is no file"),
        (lambda file: file.write_bytes(b""), "is no backup of the reconciler"),
        (lambda file: file.write_text("kind: gvc\n" * 1000), "cannot be read as records"),
        (lambda file: file.write_bytes(file.read_bytes()[:-20_000]), "damaged|malformed"),
        (damaged, "damaged|malformed"),
        (lambda file: changed(file, "PRAGMA user_version = 999"), "version 999, made by a newer reconciler"),
        (lambda file: changed(file, "DROP TABLE journal"), "is no backup of the reconciler"),
    ],
)
def test_a_damaged_backup_changes_nothing(
    path: Path, records: Records, backup: Path, spoil: Callable[[Path], object], words: str
) -> None:
    records.applied.put(record("gvc/new"))
    spoil(backup)
    with pytest.raises(RecordsError, match=words):
        restore_backup(backup, path, force=True)
    assert keys(path) == ["gvc/new"]
    assert not any("restor" in name for name in beside(path))


def changed(file: Path, sql: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_the_records_are_not_their_own_backup(path: Path, records: Records) -> None:
    with pytest.raises(RefusedError, match="the file of the records itself"):
        restore_backup(path, path, force=True)


def test_records_that_are_in_use_are_not_replaced(
    path: Path, records: Records, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.records.backup.BUSY", 0.2)
    hold = "import sys; from pathlib import Path; from reconciler.records.store import Records; "
    hold += "r = Records.open(Path(sys.argv[1])); print(len(r.secret_key), flush=True); sys.stdin.read()"
    records.close()
    command = [sys.executable, "-c", hold, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RecordsError, match="another command has the records"):
            restore_backup(backup, path, force=True)
        assert beside(path)[0] == "records.sqlite"
        assert "records.sqlite.before-restore" not in beside(path)


def test_a_full_disk_leaves_the_former_records(path: Path, records: Records, backup: Path) -> None:
    records.close()
    with small_disk(path.parent / "small", "size=2m") as small:
        target = small / path.name
        shutil.copy(path, target)
        (small / "ballast").write_bytes(bytes(shutil.disk_usage(small).free - 100_000))
        with pytest.raises(DiskFull):
            restore_backup(backup, target, force=True)
        assert beside(target) == ["ballast", "records.sqlite"]
        assert keys(target) == []


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_whenever_it_is_killed_the_records_are_whole(tmp_path: Path, backup: Path, step: int) -> None:
    names: set[str] = set()
    for touch in range(1, 200, step):
        path = tmp_path / f"state{touch}" / "records.sqlite"
        former = Records.open(path)
        former.applied.put(record("gvc/former"))
        former.close()
        command = [sys.executable, "-c", KILLED, str(backup), str(path), str(touch)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        [key] = keys(path)
        copies = [name for name in beside(path) if "before-restore" in name]
        assert (key, copies) in ((key, []), (key, ["records.sqlite.before-restore"]))
        assert key == "gvc/former" or copies, "nothing is replaced without a copy"
        names.add(key)
        if ended.returncode == 0:
            break
        restore_backup(backup, path, force=True)
        assert keys(path) == ["gvc/kept"]
    assert names == {"gvc/former", "gvc/kept"}
    assert touch > 5


HOSTILE = {
    "trigger": """CREATE TRIGGER evil AFTER DELETE ON approvals BEGIN
        INSERT INTO approvals VALUES ('main/x', 'evil', 1.0, NULL); END""",
    "view": "CREATE VIEW evil AS SELECT * FROM approvals",
    "table": "CREATE TABLE evil (key TEXT)",
    "index": "CREATE INDEX evil ON applied (digest)",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_backup_that_brings_more_than_rows_is_refused(path: Path, backup: Path, kind: str) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute(HOSTILE[kind])
    with pytest.raises(RecordsError, match=rf"holds the {kind} 'evil', which no reconciler makes"):
        restore_backup(backup, path, force=False)
    assert not path.exists()


def test_a_trigger_with_another_text_or_a_hidden_name_is_refused(path: Path, backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = 'sqlite_stat2' WHERE name = 'desired_added'")
        connection.commit()
    with pytest.raises(RecordsError, match=r"'sqlite_stat2', which no reconciler makes|damaged|cannot be read"):
        restore_backup(backup, path, force=False)
    assert not path.exists()


def test_a_backup_that_lacks_a_table_is_refused(path: Path, backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("DROP TABLE pins")
    with pytest.raises(RecordsError, match="lacks the table pins"):
        restore_backup(backup, path, force=False)


def test_a_restore_drops_the_cache_of_decoded_documents(path: Path, backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("INSERT INTO blobs VALUES ('1234', x'00')")
        connection.commit()
    path.parent.mkdir()
    restore_backup(backup, path, force=False)
    restored = Records.open(path)
    restored.documents.use("any", keep=True)
    assert restored.documents.get("1234") is None
    restored.close()
