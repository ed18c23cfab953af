"""What several tests of commands begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import SHOP
from tests.support.git import GitRepo


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree of the shop at its newest commit."""
    repo = GitRepo.create(tmp_path / "tree", SHOP, bare=False)
    repo.git("checkout", "--quiet", "--force", "main")
    return repo.path
