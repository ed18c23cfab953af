"""`backup` and `restore`, with and without a daemon."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.backup_times import BackupTimes
from reconciler.records.store import FILE, Records
from tests.support.command_sandbox import SETTINGS, CommandSandbox, workload
from tests.support.sandbox import DaemonSandbox, eventually

PASSWORD = "not-a-real-password"


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    return sandbox


def test_a_lost_state_directory_comes_back_from_a_backup(sandbox: CommandSandbox) -> None:
    before = sandbox.run("get", "-o", "json").json["items"]
    file = sandbox.path / "copy.sqlite"
    result = sandbox.run("backup", str(file))
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(rf"{file}: 8 resources, \d+\.\d MB; it contains secrets as plain text\n", result.out)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shutil.rmtree(sandbox.state)
    restored = sandbox.run("restore", str(file))
    assert (restored.code, restored.err) == (0, "")
    assert f"{sandbox.state / 'records.sqlite'}: 8 resources" in restored.out
    assert "reconciler plan" in restored.out
    assert sandbox.run("get", "-o", "json").json["items"] == before
    assert sandbox.plan()["steps"] == []
    assert PASSWORD not in result.out + restored.out


def test_the_first_run_after_a_restore_applies_later_commits_again(sandbox: CommandSandbox) -> None:
    file = sandbox.path / "copy.sqlite"
    sandbox.run("backup", str(file))
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    sandbox.applied()
    after = sandbox.run("get", "-o", "json", real=True).json["items"]
    assert sandbox.run("restore", str(file)).code == 1
    result = sandbox.run("restore", str(file), "--force")
    assert result.code == 0
    assert (
        f"the former records are {sandbox.state / 'records.sqlite'}.before-restore; they contain secrets" in result.out
    )
    assert "workload/shop/new" not in sandbox.recorded()
    sandbox.applied()
    assert {each["name"]: each["version"] for each in sandbox.run("get", "-o", "json").json["items"]} == {
        each["name"]: each["version"] for each in after
    }
    assert "new" in sandbox.status("shop/workload/new.yaml")


@pytest.mark.parametrize("target", ["state/records.sqlite", "state/copy.sqlite", "state", "nowhere/copy.sqlite"])
def test_a_backup_goes_to_a_place_of_its_own(sandbox: CommandSandbox, target: str) -> None:
    result = sandbox.run("backup", str(sandbox.path / target))
    assert result.code in (1, 2)
    assert target in result.err
    assert len(result.err.splitlines()) == 1
    assert sandbox.plan()["steps"] == []


def test_a_backup_needs_records(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    assert sandbox.run("backup", str(tmp_path / "copy")).code == 1
    assert not (tmp_path / "copy").exists()


def test_a_daemon_is_backed_up_as_it_works_and_never_restored_under(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path)
    file = tmp_path / "copy.sqlite"
    with sandbox.daemon() as daemon:
        eventually(lambda: "workload/shop/api@here" in sandbox.recorded(), "the first commit is applied")
        assert sandbox.run("backup", str(file)).returncode == 0
        refused = sandbox.run("restore", str(file), "--force")
        assert refused.returncode == 1
        assert f"in use by pid {daemon.process.pid} " in refused.stderr
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: sandbox.applied(commit), "it goes on")
    assert sandbox.run("restore", str(file), "--force").returncode == 0
    assert "workload/shop/web@here" not in sandbox.recorded()
    with sandbox.daemon():
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "what came later is applied again")


def read_times(sandbox: CommandSandbox) -> BackupTimes:
    """What the records know of their backups."""
    with closing(Records.open(sandbox.state / FILE, read_only=True)) as records:
        return records.backups.get()


def read_daemon(sandbox: CommandSandbox) -> list[str]:
    """The reasons of the conditions of the daemon that need attention."""
    result = sandbox.run("status", "-o", "json")
    assert (result.code, result.json["outlook"]) == (0, "well")
    return [condition["reason"] for condition in result.json["daemonConditions"]]


def examine(sandbox: CommandSandbox) -> list[tuple[str, str]]:
    """The verdicts and messages of doctor about backups."""
    checks = sandbox.run("doctor", "--format", "json").json["checks"]
    return [(check["verdict"], check["message"]) for check in checks if check["about"] == "backups"]


def test_status_and_doctor_know_the_newest_backup_and_that_a_later_try_failed(sandbox: CommandSandbox) -> None:
    assert (read_daemon(sandbox), examine(sandbox)) == ([], [])
    sandbox.settings.write_text(SETTINGS + "backups: {longestAge: 26h}\n")
    assert read_daemon(sandbox) == ["BackupStale"]
    assert [verdict for verdict, _ in examine(sandbox)] == ["problem"]
    assert sandbox.run("backup", str(sandbox.path / "copy")).code == 0
    assert read_daemon(sandbox) == []
    [(verdict, message)] = examine(sandbox)
    assert (verdict, message.startswith("the newest one was made ")) == ("ok", True)
    assert sandbox.run("backup", str(sandbox.path / "nowhere" / "copy")).code == 1
    assert read_daemon(sandbox) == ["BackupFailed"]
    [(verdict, message)] = examine(sandbox)
    assert (verdict, "nowhere/copy" in message) == ("problem", True)
    assert "BackupFailed" in sandbox.run("status").out
    assert sandbox.run("backup", str(sandbox.path / "copy")).code == 0
    assert read_daemon(sandbox) == []


def test_restored_records_are_as_old_as_their_backup(sandbox: CommandSandbox) -> None:
    first, second = sandbox.path / "first", sandbox.path / "second"
    began = time.time()
    sandbox.run("backup", str(first))
    taken = read_times(sandbox).taken
    assert taken is not None
    assert began <= taken <= time.time()
    sandbox.run("backup", str(second))
    sandbox.run("backup", str(sandbox.path / "nowhere" / "copy"))
    assert read_times(sandbox).failed is not None
    assert sandbox.run("restore", str(first), "--force").code == 0
    assert read_times(sandbox) == BackupTimes(taken)


def test_records_that_cannot_be_written_are_backed_up(sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.records.connection.BUSY", 0.2)
    with closing(sqlite3.connect(sandbox.state / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = sandbox.run("backup", str(sandbox.path / "copy"))
        assert (result.code, result.err) == (0, "")
        sandbox.settings.write_text(SETTINGS + "backups: {longestAge: 26h}\n")
        result = sandbox.run("backup", str(sandbox.path / "copy"))
    assert result.code == 0
    assert result.err.startswith("the result could not be recorded, so `reconciler status` does not know it: ")
    assert read_times(sandbox) == BackupTimes()
    assert (sandbox.path / "copy").exists()
