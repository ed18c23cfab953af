"""Signed history through the commands: commits pushed while a source is pinned are verified on resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, CommandSandbox, workload
from tests.support.keys import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    signers = Keys(tmp_path / "keys")
    signers.ssh("ada")
    yield signers
    signers.stop()


@pytest.fixture
def sandbox(tmp_path: Path, keys: Keys) -> CommandSandbox:
    """A sandbox that has applied two commits of ada's."""
    (tmp_path / "desk").mkdir()
    verify = f"verify: {{signed: history, allowedSigners: '{keys.signers}'}}"
    sandbox = CommandSandbox(tmp_path / "desk", settings=SETTINGS.replace("branch: main}", f"branch: main, {verify}}}"))
    for tag in ("2", "3"):
        keys.commit(sandbox.repo, "shop/web.yaml", workload("web", tag), "ada")
        sandbox.applied()
    return sandbox


def test_commits_pushed_during_a_rollback_are_verified_on_resume(sandbox: CommandSandbox, keys: Keys) -> None:
    assert sandbox.run("rollback", "main", "main~1").code == 0
    sandbox.applied()
    slip = keys.commit(sandbox.repo, "shop/web.yaml", workload("web", "4"))
    keys.commit(sandbox.repo, "shop/more.yaml", workload("more"), "ada")
    sandbox.applied()
    sandbox.run("resume", "main")
    result = sandbox.run("apply")
    assert result.code == 1
    assert f"commit {slip[:12]} is not accepted: it is not signed" in result.out + result.err
    assert "workload/shop/more" not in sandbox.recorded()


@pytest.mark.parametrize("signed", ["history", "commit"])
def test_an_older_signed_commit_is_not_followed_after_a_rollback(sandbox: CommandSandbox, signed: str) -> None:
    sandbox.settings.write_text(sandbox.settings.read_text().replace("signed: history", f"signed: {signed}"))
    sandbox.run("rollback", "main", "main~1")
    sandbox.applied()
    sandbox.repo.git("update-ref", "refs/heads/main", "main~1")
    sandbox.run("resume", "main")
    result = sandbox.run("apply")
    assert result.code == 1
    assert "does not contain the last commit" in result.out + result.err


def test_an_unsigned_revision_is_neither_planned_nor_rolled_back_to(sandbox: CommandSandbox) -> None:
    sandbox.commit(
        {"shop/web.yaml": workload("web", "5")}, branch="feature", parent=sandbox.repo.git("rev-parse", "main")
    )
    for words in (["plan", "--revision", "feature"], ["rollback", "main", "feature"]):
        result = sandbox.run(*words)
        assert result.code == 1
        assert "it is not signed; nothing of it is read" in result.err
    sandbox.applied()
