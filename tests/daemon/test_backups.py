"""A daemon reports that its records are not backed up as its settings expect, and the end of that."""

from __future__ import annotations

from pathlib import Path

from reconciler.records.tables.conditions import HOST
from tests.support.sandbox import DaemonSandbox, eventually


def list_events(sandbox: DaemonSandbox) -> list[str]:
    """The reasons of the events about backups, oldest first."""
    with sandbox.records() as records:
        return [one.reason for one in records.events.list(limit=1000) if one.reason.startswith("Backup")]


def test_an_old_backup_is_reported_until_the_next_one_is_made(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, backups={"longestAge": "26h"})
    with sandbox.daemon() as daemon:
        eventually(lambda: sandbox.condition("BackedUp", HOST) == "true BackupTaken", "the first one is awaited")
        assert list_events(sandbox) == []
        sandbox.configure(backups={"longestAge": 0})
        eventually(lambda: sandbox.condition("BackedUp", HOST) == "false BackupStale", "it is too late")
        assert "make one: reconciler backup FILE" in sandbox.condition_message("BackedUp", HOST)
        assert sandbox.run("backup", str(tmp_path / "nowhere" / "copy")).returncode == 1
        eventually(lambda: sandbox.condition("BackedUp", HOST) == "false BackupFailed", "a try failed")
        assert "nowhere/copy" in sandbox.condition_message("BackedUp", HOST)
        sandbox.configure(backups={"longestAge": "26h"})
        eventually(lambda: len(daemon.logged("settings", loaded=True)) == 2, "the settings are taken over")
        assert sandbox.condition("BackedUp", HOST) == "false BackupFailed"
        assert sandbox.run("backup", str(tmp_path / "copy")).returncode == 0
        eventually(lambda: sandbox.condition("BackedUp", HOST) == "true BackupTaken", "one is made")
        assert [line["reason"] for line in daemon.logged("backup")] == ["BackupStale", "BackupFailed", "BackupTaken"]
    assert list_events(sandbox) == ["BackupStale", "BackupFailed", "BackupRecovered"]


def test_without_the_setting_nothing_is_reported_and_a_report_ends(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, backups={"longestAge": 0})
    with sandbox.daemon() as daemon:
        eventually(lambda: sandbox.condition("BackedUp", HOST) == "false BackupStale", "none is young enough")
        del sandbox.settings["backups"]
        sandbox.configure()
        eventually(lambda: not sandbox.condition("BackedUp", HOST), "nobody waits for one any more")
        assert list_events(sandbox) == ["BackupStale", "BackupRecovered"]
        assert sandbox.run("backup", str(tmp_path / "nowhere" / "copy")).returncode == 1
        with sandbox.records() as records:
            assert records.backups.get().failed is not None
        assert len(daemon.logged("backup")) == 1
    with sandbox.records() as records:
        assert records.backups.get().awaited is None
