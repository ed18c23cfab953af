"""`backup` and `restore`, with and without a daemon."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.command_sandbox import Desk, workload
from tests.support.sandbox import Site, eventually

PASSWORD = "not-a-real-password"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose shop is applied."""
    desk = Desk(tmp_path)
    desk.applied()
    return desk


def test_a_lost_state_directory_comes_back_from_a_backup(desk: Desk) -> None:
    before = desk.run("get", "-o", "json").json["items"]
    file = desk.path / "copy.sqlite"
    result = desk.run("backup", str(file))
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(rf"{file}: 8 resources, \d+\.\d MB; it contains secrets as plain text\n", result.out)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shutil.rmtree(desk.state)
    restored = desk.run("restore", str(file))
    assert (restored.code, restored.err) == (0, "")
    assert f"{desk.state / 'records.sqlite'}: 8 resources" in restored.out
    assert "reconciler plan" in restored.out
    assert desk.run("get", "-o", "json").json["items"] == before
    assert desk.plan()["steps"] == []
    assert PASSWORD not in result.out + restored.out


def test_the_first_run_after_a_restore_applies_later_commits_again(desk: Desk) -> None:
    file = desk.path / "copy.sqlite"
    desk.run("backup", str(file))
    desk.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    desk.applied()
    after = desk.run("get", "-o", "json", real=True).json["items"]
    assert desk.run("restore", str(file)).code == 1
    result = desk.run("restore", str(file), "--force")
    assert result.code == 0
    assert f"the former records are {desk.state / 'records.sqlite'}.before-restore; they contain secrets" in result.out
    assert "workload/shop/new" not in desk.recorded()
    desk.applied()
    assert {each["name"]: each["version"] for each in desk.run("get", "-o", "json").json["items"]} == {
        each["name"]: each["version"] for each in after
    }
    assert "new" in desk.status("shop/workload/new.yaml")


@pytest.mark.parametrize("place", ["state/records.sqlite", "state/copy.sqlite", "state", "nowhere/copy.sqlite"])
def test_a_backup_goes_to_a_place_of_its_own(desk: Desk, place: str) -> None:
    result = desk.run("backup", str(desk.path / place))
    assert result.code in (1, 2)
    assert place in result.err
    assert len(result.err.splitlines()) == 1
    assert desk.plan()["steps"] == []


def test_a_backup_needs_records(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.run("backup", str(tmp_path / "copy")).code == 1
    assert not (tmp_path / "copy").exists()


def test_a_daemon_is_backed_up_as_it_works_and_never_restored_under(tmp_path: Path) -> None:
    site = Site(tmp_path)
    file = tmp_path / "copy.sqlite"
    with site.daemon() as daemon:
        eventually(lambda: "workload/shop/api@here" in site.recorded(), "the first commit is applied")
        assert site.run("backup", str(file)).returncode == 0
        refused = site.run("restore", str(file), "--force")
        assert refused.returncode == 1
        assert f"in use by pid {daemon.process.pid} " in refused.stderr
        commit = site.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: site.applied(commit), "it goes on")
    assert site.run("restore", str(file), "--force").returncode == 0
    assert "workload/shop/web@here" not in site.recorded()
    with site.daemon():
        eventually(lambda: "workload/shop/web@here" in site.recorded(), "what came later is applied again")
