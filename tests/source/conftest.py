"""Sources of one repository each, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.settings import SourceSettings
from reconciler.source.source import Source, open_source
from tests.support.git import Files, GitRepo

Opener = Callable[..., Source]


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    """Opens the repository at a path or url as a source, with settings by name."""

    def opened(url: object, **settings: Any) -> Source:
        if not {"branch", "tag", "commit"} & settings.keys():
            settings["branch"] = "main"
        return open_source(SourceSettings(name="main", url=str(url), **settings), tmp_path / "state")

    return opened


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    """A bare repository with one manifest."""
    return GitRepo.create(tmp_path / "manifests.git", {"shop/gvc.yaml": "kind: gvc\n"})


@pytest.fixture
def make_source(tmp_path: Path, opener: Opener) -> Callable[..., Source]:
    """Makes a bare repository of files and opens it as a source."""

    def make(files: Files, **settings: Any) -> Source:
        return opener(GitRepo.create(tmp_path / "made.git", files).path, **settings)

    return make
