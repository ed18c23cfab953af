"""`plan --dir` and `diff` without a second revision show what a directory holds, committed or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, SHOP, CommandSandbox, here, workload
from tests.support.git import GitRepo


@pytest.fixture
def sandbox(tmp_path: Path, tree: Path) -> CommandSandbox:
    sandbox = CommandSandbox(tmp_path / "sandbox", settings=SETTINGS.replace("./manifests", str(tree)))
    assert sandbox.run("apply").code == 0
    return sandbox


def test_what_is_not_committed_is_planned_and_nothing_is_written(sandbox: CommandSandbox, tree: Path) -> None:
    before = GitRepo(tree).git("rev-parse", "main")
    assert "nothing to do" in sandbox.run("plan", "--dir", str(tree)).out
    (tree / "shop/web.yaml").write_text(workload("web", "9"))
    (tree / "shop/new.yaml").write_text(workload("new"))
    (tree / ".hidden.yaml").write_text("x: [\n")
    result = sandbox.run("plan", "--dir", str(tree))
    assert (result.code, result.err) == (0, "")
    assert re.search(
        r"\+ workload/shop/new  at here, there  \([0-9a-f]{12} not committed, shop/new.yaml:1\)", result.out
    )
    assert "~ workload/shop/web  at here, there" in result.out
    assert result.out.startswith("main  work-tree@sha1:")
    assert "Plan: 1 to create, 1 to update." in result.out
    assert "nothing to do" in sandbox.run("plan").out, "commits are planned as before"
    assert GitRepo(tree).git("rev-parse", "main") == before
    assert GitRepo(tree).git("fsck", "--unreachable") == "", "no object is left in the repository"


def test_the_work_tree_of_a_source_is_planned_without_its_path(sandbox: CommandSandbox, tree: Path) -> None:
    (tree / "shop/web.yaml").write_text(workload("web", "9"))
    result = sandbox.run("plan", "--working-tree")
    assert (result.code, result.err) == (0, "")
    assert result.out == sandbox.run("plan", "--dir", str(tree)).out
    assert "Plan: 1 to update." in result.out
    assert sandbox.run("plan", "--working-tree", "--dir", str(tree)).code == 2
    bare = sandbox.path / "bare.git"
    GitRepo(tree).git("clone", "--quiet", "--bare", ".", str(bare))
    sandbox.settings.write_text(sandbox.settings.read_text().replace(str(tree), str(bare)))
    refused = sandbox.run("plan", "--working-tree")
    assert (refused.code, "no work tree is here of: main; --dir PATH" in refused.err) == (2, True), refused


def test_an_error_that_is_not_committed_has_its_line(sandbox: CommandSandbox, tree: Path) -> None:
    (tree / "shop/web.yaml").write_text(workload("web").replace("standard", "standrd"))
    for result in (sandbox.run("plan", "--dir", str(tree)), here("diff", cwd=tree)):
        assert result.code == 1
        assert "shop/web.yaml:4:9: error: `standrd` is not allowed here" in result.out
        assert "  type: standrd\n" in result.out, "the line is that of the file"


def test_a_directory_outside_of_git_is_planned_too(sandbox: CommandSandbox, tmp_path: Path) -> None:
    for path, text in SHOP.items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_text(str(text))
    (tmp_path / "copy/shop/web.yaml").unlink()
    result = sandbox.run("plan", "--dir", str(tmp_path / "copy"), "--format", "json")
    steps = [(step["action"], step["key"]) for step in result.json["steps"] if step["action"] != "noop"]
    assert {*steps} == {("delete", "workload/shop/web")}


def test_the_path_of_the_source_holds_for_the_directory(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "tree", {f"deploy/{path}": text for path, text in SHOP.items()}, bare=False)
    repo.git("checkout", "--quiet", "--force", "main")
    settings = SETTINGS.replace("./manifests", str(repo.path)).replace("branch: main", "branch: main, path: deploy")
    sandbox = CommandSandbox(tmp_path / "sandbox", settings=settings)
    assert sandbox.run("apply").code == 0
    (repo.path / "deploy/shop/web.yaml").write_text(workload("web", "9"))
    result = sandbox.run("plan", "--dir", str(repo.path / "deploy"))
    assert "Plan: 1 to update." in result.out, result


def test_diff_compares_a_commit_with_the_work_tree(tree: Path) -> None:
    assert "nothing to do" in here("diff", cwd=tree).out
    (tree / "shop/web.yaml").write_text(workload("web", "9"))
    assert "~ workload/shop/web" in here("diff", cwd=tree).out
    GitRepo(tree).git("commit", "--quiet", "--all", "--message=Newer")
    assert "nothing to do" in here("diff", "HEAD", cwd=tree).out
    assert "~ workload/shop/web" in here("diff", "main~1", cwd=tree).out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["plan", "--dir", "tree", "--revision", "main"], 2, "name one of them"),
        (["plan", "--dir", "nowhere"], 2, "nowhere"),
        (["plan", "--dir", "empty"], 1, "holds no manifest"),
        (["diff", "nowhere"], 1, "nowhere"),
    ],
)
def test_a_wrong_use_is_refused(
    sandbox: CommandSandbox, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    words = [str(tmp_path / word) if word in ("tree", "empty") else word for word in words]
    result = sandbox.run(*words)
    assert (result.code, message in result.err) == (code, True), result


def test_a_bare_repository_has_no_work_tree(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    result = sandbox.run("diff", "main")
    assert (result.code, "has no work tree; name a second revision" in result.err) == (2, True), result
