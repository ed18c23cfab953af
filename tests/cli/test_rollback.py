"""Rollbacks: which commit a source returns to, what a revision's name means, and what it follows afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.records.store import FILE
from tests.support.command_sandbox import Desk, workload


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three applied revisions of ``web``; another branch, never merged, is checked out."""
    desk = Desk(tmp_path)
    desk.applied()
    for tag in "23":
        desk.commit({"shop/web.yaml": workload("web", tag)}, message=f"Release {tag}")
        desk.applied()
    for tag in "89":
        desk.commit(
            {"shop/web.yaml": workload("web", tag)},
            message=f"Unreviewed {tag}",
            branch="feature",
            parent=commit(desk, "main" if tag == "8" else "feature"),
        )
    desk.repo.git("symbolic-ref", "HEAD", "refs/heads/feature")
    return desk


def commit(desk: Desk, name: str) -> str:
    """Full id of what Git calls ``name``."""
    return desk.repo.git("rev-parse", f"refs/heads/{name}")


def image(desk: Desk) -> str:
    """The image that ``web`` was applied with."""
    shown = desk.run("get", "workload", "web", "-o", "yaml").out
    return next(line.split()[-1] for line in shown.splitlines() if "image:" in line)


def pinned_at(desk: Desk) -> str:
    """The commit that the source is pinned to; "" where it follows its branch."""
    with closing(sqlite3.connect(desk.state / FILE)) as records:
        row = records.execute("SELECT commit_id FROM pins").fetchone()
    return str(row[0]) if row else ""


@pytest.mark.parametrize("word", ["HEAD~1", "@~1", "main~1", "refs/heads/main~1", "HEAD^", "--previous"])
def test_a_rollback_goes_by_what_is_applied_and_not_by_what_is_checked_out(desk: Desk, word: str) -> None:
    result = desk.run("rollback", "main", word)
    assert (result.code, result.err) == (0, "")
    assert "(Release 2)" in result.out
    assert pinned_at(desk) == commit(desk, "main~1")
    desk.applied()
    assert image(desk).endswith("web:2")


def test_a_second_step_back_begins_where_the_first_one_ended(desk: Desk) -> None:
    first = commit(desk, "main~2")
    for word in ("HEAD~1", "--previous"):
        assert desk.run("rollback", "main", word).code == 0
        desk.applied()
    assert pinned_at(desk) == first
    result = desk.run("rollback", "main", "--previous")
    assert result.code == 1
    assert "no earlier revision of main is recorded as applied; name one" in result.err
    assert pinned_at(desk) == first


def test_the_previous_revision_is_a_good_one(desk: Desk) -> None:
    desk.commit({"shop/web.yaml": "kind: workload\nnmae: web\n"}, message="Broken")
    assert desk.run("apply").code == 1
    desk.commit({"shop/web.yaml": workload("web", "4")}, message="Release 4")
    desk.applied()
    result = desk.run("rollback", "main", "--previous")
    assert "(Release 3)" in result.out


@pytest.mark.parametrize("word", ["feature", "feature~1"])
def test_a_commit_that_was_never_followed_is_refused_without_force(desk: Desk, word: str) -> None:
    result = desk.run("rollback", "main", word)
    assert result.code == 1
    assert f"which main never followed: it is no ancestor of {commit(desk, 'main')[:12]}" in result.err
    assert pinned_at(desk) == ""
    assert desk.run("rollback", "main", word, "--force").code == 0
    assert pinned_at(desk) == commit(desk, word)


def test_a_branch_that_points_into_what_was_followed_is_no_other_branch(desk: Desk) -> None:
    desk.repo.git("branch", "stable", commit(desk, "main~2"))
    assert desk.run("rollback", "main", "stable").code == 0


def test_the_source_s_own_branch_comes_before_a_tag_of_its_name(desk: Desk) -> None:
    desk.repo.git("tag", "main", commit(desk, "main~2"))
    assert desk.run("rollback", "main", "main").code == 0
    assert pinned_at(desk) == commit(desk, "main")


@pytest.mark.parametrize("words", [["main"], ["main", "HEAD", "--previous"]])
def test_a_rollback_takes_a_revision_or_the_previous_one_not_both(desk: Desk, words: list[str]) -> None:
    result = desk.run("rollback", *words)
    assert result.code == 2
    assert "either a revision REV or --previous" in result.err


def test_the_former_checkout_is_no_revision(desk: Desk) -> None:
    assert "names no revision" in desk.run("rollback", "main", "@{1}").err


def test_plans_and_checks_of_a_revision_name_its_commit(desk: Desk) -> None:
    assert f"HEAD~1@sha1:{commit(desk, 'main~1')}" in desk.run("plan", "--revision", "HEAD~1").out
    assert "nothing" in desk.run("plan", "--revision", "HEAD").out.lower()
    unmerged = desk.run("plan", "--revision", "feature")
    assert f"feature@sha1:{commit(desk, 'feature')}" in unmerged.out, "a plan changes nothing"
    desk.commit({"shop/bad.yaml": "kind: workload\nnmae: web\n"}, branch="feature", parent=commit(desk, "feature"))
    assert desk.run("validate", "--revision", "HEAD").code == 0
    assert desk.run("validate", "--revision", "feature").code == 1


def test_a_difference_begins_with_what_is_applied_or_in_a_checkout_with_what_is_there(desk: Desk) -> None:
    desk.commit({"shop/web.yaml": workload("web", "4")})
    assert "web:4" in desk.run("diff", "HEAD", "main").out
    here = desk.run("diff", "HEAD~1", "HEAD", "--repo", str(desk.repo.path)).out
    assert "web:8" in here
    assert "web:9" in here


def forced(desk: Desk) -> str:
    """A commit that the branch was pushed to by force, with a release 6 that is not built on release 3."""
    base = commit(desk, "main~2")
    return desk.commit({"shop/web.yaml": workload("web", "6")}, message="Rewritten", parent=base)


def refused(desk: Desk) -> None:
    result = desk.run("apply")
    assert result.code == 1
    assert "does not contain the last commit" in result.out + result.err


@pytest.mark.parametrize("back", ["HEAD~1", "HEAD~2"])
def test_rewritten_history_is_not_followed_after_a_rollback(desk: Desk, back: str) -> None:
    last = commit(desk, "main")
    desk.run("rollback", "main", back)
    desk.applied()
    forced(desk)
    desk.applied()
    assert desk.run("resume", "main").code == 0
    for _ in range(2):
        refused(desk)
    assert not image(desk).endswith("web:6")
    desk.repo.git("update-ref", "refs/heads/main", last)
    desk.commit({"shop/web.yaml": workload("web", "7")})
    desk.applied()
    assert image(desk).endswith("web:7")


def test_an_older_commit_of_the_branch_is_rewritten_history_too(desk: Desk) -> None:
    desk.run("rollback", "main", "HEAD~2")
    desk.applied()
    desk.repo.git("update-ref", "refs/heads/main", commit(desk, "main~1"))
    desk.run("resume", "main")
    refused(desk)


def test_with_leave_rewritten_history_is_followed_after_a_rollback(desk: Desk) -> None:
    desk.run("rollback", "main", "HEAD~1")
    desk.applied()
    forced(desk)
    desk.run("resume", "main")
    desk.settings.write_text(desk.settings.read_text().replace("branch: main", "branch: main, allowRewrite: true"))
    desk.applied()
    assert image(desk).endswith("web:6")
