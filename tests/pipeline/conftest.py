"""Fixtures of the tests of the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.git import GitRepo


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    """A repository for many short histories, each on a branch of its own; it need not survive a power cut."""
    repo = GitRepo.create(tmp_path / "shared.git")
    repo.git("config", "core.fsync", "none")
    return repo
