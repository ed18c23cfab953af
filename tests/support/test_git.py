"""Commits that tests make in their own process are those that Git makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.git import Files, GitRepo

PATHS = st.sampled_from(["a", "b", "a/b", "a/c", "a/b/c", "a-b", "a.b", "b/a.yaml", "B"])
COMMITS = st.lists(st.dictionaries(PATHS, st.sampled_from(["", "1\n", b"\xff", None]), max_size=4), max_size=4)


@settings(max_examples=examples(40))
@given(COMMITS)
@example([{"a/b": "", "B": "", "a": "", "a/c": ""}])
def test_a_commit_is_the_same_by_both_ways(tmp_path_factory: pytest.TempPathFactory, commits: list[Files]) -> None:
    ours, gits = (GitRepo.create(tmp_path_factory.mktemp(name)) for name in ("ours", "gits"))
    for number, files in enumerate(commits):
        gits._time = ours._time + 1
        expected = gits._import("refs/heads/main", gits._tip("refs/heads/main"), files, str(number), False)
        assert ours.commit(files, str(number)) == expected
    assert ours.git("fsck", "--strict", "--no-dangling") == ""


def test_the_folders_of_a_repository_are_as_git_makes_them(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo", {"a": "1"}, bare=False)
    assert repo.git("status", "--porcelain") == "D  a"
    assert (tmp_path / "repo").stat().st_mode == (tmp_path / "repo" / ".git").stat().st_mode
