"""How a repository is opened: what libgit2 may hold in memory."""

from __future__ import annotations

from pathlib import Path

import pygit2

from reconciler.source.libgit import CACHE_BYTES, open_git
from tests.support.git import GitRepo


def test_the_memory_for_objects_does_not_grow_with_their_number(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "repo.git", {"a.yaml": "a"})
    git = open_git(repo.path)
    blob = git.create_blob(b"a")
    largest = 0
    for number in range(200):
        tree = git.TreeBuilder()
        for index in range(400):
            tree.insert(f"{number:04}-{index:04}-{'x' * 40}.yaml", blob, pygit2.enums.FileMode.BLOB)
        assert len(git[tree.write()]) == 400
        largest = max(largest, pygit2.settings.cached_memory[0])
    assert 0 < largest < 1.5 * CACHE_BYTES
