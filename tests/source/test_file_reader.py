"""Files of a revision, as findings show them."""

from __future__ import annotations

import pytest

from reconciler.source import repository
from reconciler.source.file_reader import make_file_reader
from tests.source.conftest import Opener
from tests.support.git import Files, GitRepo, Symlink


def test_a_file_is_read_at_its_revision_and_a_link_or_a_missing_file_is_empty(repo: GitRepo, opener: Opener) -> None:
    files: Files = {"top.yaml": "top", "shop/api.yaml": "api", "shop/link.yaml": Symlink("api.yaml")}
    repo.commit(files)
    source = opener(repo.path)
    read = make_file_reader(source.repository, source.revision())
    repo.commit({"shop/api.yaml": "changed"})
    assert [read(path) for path in ("top.yaml", "shop/api.yaml")] == [b"top", b"api"]
    assert {read(path) for path in ("shop/link.yaml", "shop", "shop/none.yaml", "none/api.yaml", "top.yaml/x")} == {b""}


def test_many_files_of_a_folder_cost_one_listing_of_it(
    repo: GitRepo, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"shop/{number}.yaml" for number in range(40)]
    repo.commit(dict.fromkeys(paths, "a"))
    source = opener(repo.path)
    read = make_file_reader(source.repository, source.revision())
    parsed = []
    parse = repository.parse_tree
    monkeypatch.setattr(repository, "parse_tree", lambda content: parsed.append(content) or parse(content))
    assert [read(path) for path in paths] == [b"a"] * len(paths)
    assert len(parsed) == 2, "the top, and the folder"
