"""What is edited and not committed is named by `plan` and `apply`, which read commits only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, CommandSandbox, workload
from tests.support.git import GitRepo

NOTE = (
    "source main: 1 file differs from the commit and does not count: shop/web.yaml; commit what is to run, or plan it: "
    "reconciler plan --working-tree\n"
)


@pytest.fixture
def sandbox(tmp_path: Path, tree: Path) -> CommandSandbox:
    return CommandSandbox(tmp_path / "sandbox", settings=SETTINGS.replace("./manifests", str(tree)))


def test_an_edited_manifest_is_named(sandbox: CommandSandbox, tree: Path) -> None:
    assert sandbox.run("plan").err == ""
    (tree / "shop/web.yaml").write_text(workload("web", "9"))
    (tree / "notes.txt").write_text("not a manifest")
    for command in (["plan"], ["plan", "--format", "json"], ["apply"]):
        result = sandbox.run(*command)
        assert (result.code, result.err) == (0, NOTE), command
    (tree / "shop/new.yaml").write_text(workload("new"))
    assert "2 files differ from the commit and do not count: shop/new.yaml, shop/web.yaml;" in sandbox.run("plan").err
    assert sandbox.run("plan", "--revision", "main").err == "", "who names a revision wants that one"


def test_another_branch_that_is_checked_out_does_not_count(sandbox: CommandSandbox, tree: Path) -> None:
    GitRepo(tree).git("checkout", "--quiet", "-b", "side")
    (tree / "shop/web.yaml").write_text(workload("web", "9"))
    assert sandbox.run("plan").err == ""


def test_files_that_the_source_does_not_read_do_not_count(sandbox: CommandSandbox, tree: Path) -> None:
    text = sandbox.settings.read_text().replace("branch: main", "branch: main, path: shop")
    sandbox.settings.write_text(text)
    for path in ("secrets.yaml", ".github/ci.yaml", "shop/.hidden.yaml"):
        file = tree / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("x: 1\n")
    assert sandbox.run("plan").err == ""
    (tree / "shop/a\x1bb.yaml").write_text("x: 1\n")
    assert "shop/a\\u001bb.yaml" in sandbox.run("plan").err
