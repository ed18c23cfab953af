"""Rollbacks: which commit a source returns to, what a revision's name means, and what it follows afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.store import FILE
from tests.support.command_sandbox import CommandSandbox, workload


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """Three applied revisions of ``web``; another branch, never merged, is checked out."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    for tag in "23":
        sandbox.commit({"shop/web.yaml": workload("web", tag)}, message=f"Release {tag}")
        sandbox.applied()
    for tag in "89":
        sandbox.commit(
            {"shop/web.yaml": workload("web", tag)},
            message=f"Unreviewed {tag}",
            branch="feature",
            parent=commit(sandbox, "main" if tag == "8" else "feature"),
        )
    sandbox.repo.git("symbolic-ref", "HEAD", "refs/heads/feature")
    return sandbox


def commit(sandbox: CommandSandbox, name: str) -> str:
    """Full id of what Git calls ``name``."""
    return sandbox.repo.git("rev-parse", f"refs/heads/{name}")


def image(sandbox: CommandSandbox) -> str:
    """The image that ``web`` was applied with."""
    shown = sandbox.run("get", "workload", "web", "-o", "yaml").out
    return next(line.split()[-1] for line in shown.splitlines() if "image:" in line)


def pinned_at(sandbox: CommandSandbox) -> str:
    """The commit that the source is pinned to; "" where it follows its branch."""
    with closing(sqlite3.connect(sandbox.state / FILE)) as records:
        row = records.execute("SELECT commit_id FROM pins").fetchone()
    return str(row[0]) if row else ""


@pytest.mark.parametrize("word", ["HEAD~1", "@~1", "main~1", "refs/heads/main~1", "HEAD^", "--previous"])
def test_a_rollback_goes_by_what_is_applied_and_not_by_what_is_checked_out(sandbox: CommandSandbox, word: str) -> None:
    result = sandbox.run("rollback", "main", word)
    assert (result.code, result.err) == (0, "")
    assert "(Release 2)" in result.out
    assert pinned_at(sandbox) == commit(sandbox, "main~1")
    sandbox.applied()
    assert image(sandbox).endswith("web:2")


def test_a_second_step_back_begins_where_the_first_one_ended(sandbox: CommandSandbox) -> None:
    first = commit(sandbox, "main~2")
    for word in ("HEAD~1", "--previous"):
        assert sandbox.run("rollback", "main", word).code == 0
        sandbox.applied()
    assert pinned_at(sandbox) == first
    result = sandbox.run("rollback", "main", "--previous")
    assert result.code == 1
    assert "no earlier revision of main is recorded as applied; name one" in result.err
    assert pinned_at(sandbox) == first


def test_the_previous_revision_is_a_good_one(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/web.yaml": "kind: workload\nnmae: web\n"}, message="Broken")
    assert sandbox.run("apply").code == 1
    sandbox.commit({"shop/web.yaml": workload("web", "4")}, message="Release 4")
    sandbox.applied()
    result = sandbox.run("rollback", "main", "--previous")
    assert "(Release 3)" in result.out


@pytest.mark.parametrize("word", ["feature", "feature~1"])
def test_a_commit_that_was_never_followed_is_refused_without_force(sandbox: CommandSandbox, word: str) -> None:
    result = sandbox.run("rollback", "main", word)
    assert result.code == 1
    assert f"which main never followed: it is no ancestor of {commit(sandbox, 'main')[:12]}" in result.err
    assert pinned_at(sandbox) == ""
    assert sandbox.run("rollback", "main", word, "--force").code == 0
    assert pinned_at(sandbox) == commit(sandbox, word)


def test_a_branch_that_points_into_what_was_followed_is_no_other_branch(sandbox: CommandSandbox) -> None:
    sandbox.repo.git("branch", "stable", commit(sandbox, "main~2"))
    assert sandbox.run("rollback", "main", "stable").code == 0


def test_the_source_s_own_branch_comes_before_a_tag_of_its_name(sandbox: CommandSandbox) -> None:
    sandbox.repo.git("tag", "main", commit(sandbox, "main~2"))
    assert sandbox.run("rollback", "main", "main").code == 0
    assert pinned_at(sandbox) == commit(sandbox, "main")


@pytest.mark.parametrize("words", [["main"], ["main", "HEAD", "--previous"]])
def test_a_rollback_takes_a_revision_or_the_previous_one_not_both(sandbox: CommandSandbox, words: list[str]) -> None:
    result = sandbox.run("rollback", *words)
    assert result.code == 2
    assert "either a revision REV or --previous" in result.err


def test_the_former_checkout_is_no_revision(sandbox: CommandSandbox) -> None:
    assert "names no revision" in sandbox.run("rollback", "main", "@{1}").err


def test_plans_and_checks_of_a_revision_name_its_commit(sandbox: CommandSandbox) -> None:
    assert f"HEAD~1@sha1:{commit(sandbox, 'main~1')[:12]}" in sandbox.run("plan", "--revision", "HEAD~1").out
    assert "nothing" in sandbox.run("plan", "--revision", "HEAD").out.lower()
    unmerged = sandbox.run("plan", "--revision", "feature")
    assert f"feature@sha1:{commit(sandbox, 'feature')[:12]}" in unmerged.out, "a plan changes nothing"
    sandbox.commit(
        {"shop/bad.yaml": "kind: workload\nnmae: web\n"}, branch="feature", parent=commit(sandbox, "feature")
    )
    assert sandbox.run("validate", "--revision", "HEAD").code == 0
    assert sandbox.run("validate", "--revision", "feature").code == 1


def test_a_difference_begins_with_what_is_applied_or_in_a_checkout_with_what_is_there(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/web.yaml": workload("web", "4")})
    assert "web:4" in sandbox.run("diff", "HEAD", "main").out
    here = sandbox.run("diff", "HEAD~1", "HEAD", "--repo", str(sandbox.repo.path)).out
    assert "web:8" in here
    assert "web:9" in here


def forced(sandbox: CommandSandbox) -> str:
    """A commit that the branch was pushed to by force, with a release 6 that is not built on release 3."""
    base = commit(sandbox, "main~2")
    return sandbox.commit({"shop/web.yaml": workload("web", "6")}, message="Rewritten", parent=base)


def refused(sandbox: CommandSandbox) -> None:
    result = sandbox.run("apply")
    assert result.code == 1
    assert "does not contain the last commit" in result.out + result.err


@pytest.mark.parametrize("back", ["HEAD~1", "HEAD~2"])
def test_rewritten_history_is_not_followed_after_a_rollback(sandbox: CommandSandbox, back: str) -> None:
    last = commit(sandbox, "main")
    sandbox.run("rollback", "main", back)
    sandbox.applied()
    forced(sandbox)
    sandbox.applied()
    assert sandbox.run("resume", "main").code == 0
    for _ in range(2):
        refused(sandbox)
    assert not image(sandbox).endswith("web:6")
    sandbox.repo.git("update-ref", "refs/heads/main", last)
    sandbox.commit({"shop/web.yaml": workload("web", "7")})
    sandbox.applied()
    assert image(sandbox).endswith("web:7")


def test_an_older_commit_of_the_branch_is_rewritten_history_too(sandbox: CommandSandbox) -> None:
    sandbox.run("rollback", "main", "HEAD~2")
    sandbox.applied()
    sandbox.repo.git("update-ref", "refs/heads/main", commit(sandbox, "main~1"))
    sandbox.run("resume", "main")
    refused(sandbox)


def test_with_leave_rewritten_history_is_followed_after_a_rollback(sandbox: CommandSandbox) -> None:
    sandbox.run("rollback", "main", "HEAD~1")
    sandbox.applied()
    forced(sandbox)
    sandbox.run("resume", "main")
    sandbox.settings.write_text(
        sandbox.settings.read_text().replace("branch: main", "branch: main, allowRewrite: true")
    )
    sandbox.applied()
    assert image(sandbox).endswith("web:6")
