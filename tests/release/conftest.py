"""A release of this tree, and a later one whose records have a newer schema; each is built once for all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project.tree import ROOT, listed
from tests.support.git import git
from tests.support.programs import tool
from tests.support.trust import machine_environ

NEWER = "0.2.0"
"""The version of the later release."""


class Release(NamedTuple):
    """The checkout that a release is made of, and its files."""

    tree: Path
    files: Path

    def find(self, pattern: str) -> Path:
        """The one file whose name fits ``pattern``."""
        (path,) = self.files.glob(pattern)
        return path


def build(tree: Path, files: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """How ``python -m release`` ends in the checkout ``tree``."""
    tool("dpkg-deb", "dpkg")
    return subprocess.run(
        [sys.executable, "-m", "release", "--out", str(files), *options],
        cwd=tree,
        env={**machine_environ(), "PYTHONPATH": ".ci", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def release(tree: Path, files: Path) -> Release:
    """The release of ``tree``."""
    done = build(tree, files)
    assert done.returncode == 0, done.stderr
    return Release(tree, files)


def commit(tree: Path, subject: str) -> None:
    """Commit all that ``tree`` has."""
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", subject)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One commit with the files of this tree, as they are."""
    if sys.version_info[:2] != (3, 11) and not os.environ.get("CI"):
        pytest.skip("a release is made with the Python of Debian 12, 3.11")
    tree = tmp_path_factory.mktemp("checkout")
    for name in listed():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    git(tree, "init", "--quiet", "--initial-branch=main")
    commit(tree, "Release this")
    return tree


@pytest.fixture(scope="session")
def released(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What `make release` makes of this tree."""
    return release(checkout, tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="session")
def newer(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A later release, which migrates the records."""
    tree = tmp_path_factory.mktemp("newer")
    git(tree, "clone", "--quiet", str(checkout), ".")
    changes = {
        "pyproject.toml": ('\nversion = "0.1.0"', f'\nversion = "{NEWER}"'),
        "reconciler/__init__.py": ('"0.1.0"', f'"{NEWER}"'),
        "reconciler/records/migrations.py": (
            "*MIGRATIONS)\n",
            '*MIGRATIONS, ("CREATE TABLE later (name TEXT) STRICT",))\n',
        ),
    }
    for name, (before, after) in changes.items():
        text = (tree / name).read_text()
        assert before in text, name
        (tree / name).write_text(text.replace(before, after))
    commit(tree, "Release more")
    return release(tree, tmp_path_factory.mktemp("newer-files"))
