"""`backup` and `restore`, with and without a daemon."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.command_sandbox import CommandSandbox, workload
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
