"""What a directory holds now as a commit: of a repository that exists for a plan only, so that nothing else sees it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pygit2
from pygit2.enums import FileMode

from reconciler.documents.limits import read_within
from reconciler.errors import UsageError
from reconciler.review.folder import list_manifest_paths
from reconciler.settings import SourceSettings
from reconciler.source.file_filter import IGNORE_FILE, REPOSITORY_FILE
from reconciler.source.file_reader import Read
from reconciler.source.libgit import open_git

BRANCH = "work-tree"
"""The branch whose only commit is what the directory holds."""
_AUTHOR = ("not committed", "nobody@localhost")


def find_work_tree(source: SourceSettings) -> Path:
    """The directory of the manifests in the work tree of ``source``. Raises UsageError where it has none."""
    git_directory = pygit2.discover_repository(source.url) if source.local else None
    root = open_git(Path(git_directory)).workdir if git_directory is not None else None
    if root is None:
        raise UsageError(f"{source.url} has no work tree; name a second revision, or a directory with --dir")
    return Path(root) / source.path


@contextmanager
def commit_work_tree(source: SourceSettings, directory: Path) -> Iterator[SourceSettings]:
    """``source`` with the manifests in ``directory``, committed or not, in place of those in Git.

    The commit is in a repository of its own, which has all objects of the one around ``directory`` and ends with the
    block; its parent is the checked-out commit. Raises UsageError where a file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="reconciler-") as scratch:
        repository = pygit2.init_repository(scratch, bare=True, initial_head=BRANCH)
        parents = _borrow_objects(Path(scratch), directory)
        repository = open_git(Path(scratch))
        tree = _write_tree(repository, directory, "" if source.path.strip("/") == "." else source.path.strip("/"))
        author = pygit2.Signature(*_AUTHOR, int(time.time()), 0)
        repository.create_commit(f"refs/heads/{BRANCH}", author, author, f"{directory} as it is", tree, parents)
        yield msgspec.structs.replace(source, url=scratch, branch=BRANCH, tag="", commit="", verify=None)


def read_from(directory: Path) -> Read:
    """What reads a file below ``directory`` for excerpts; a file that is gone meanwhile is empty."""

    def read(path: str) -> bytes:
        try:
            return read_within(directory / path)
        except (OSError, UsageError):
            return b""

    return read


def _borrow_objects(scratch: Path, directory: Path) -> list[pygit2.Oid]:
    """Let the repository ``scratch`` have the objects of the one around ``directory``; returns its HEAD, if any."""
    git_directory = pygit2.discover_repository(str(directory))
    if git_directory is None:
        return []
    around = open_git(Path(git_directory))
    pointer = Path(around.path) / "commondir"
    shared = (pointer.parent / pointer.read_text().strip()).resolve() if pointer.is_file() else pointer.parent
    (scratch / "objects" / "info" / "alternates").write_text(f"{shared / 'objects'}\n")
    return [] if around.head_is_unborn else [around.head.peel(pygit2.Commit).id]


def _write_tree(repository: pygit2.Repository, directory: Path, below: str) -> pygit2.Oid:
    """The tree with the manifests in ``directory`` at the path ``below``. Raises UsageError."""
    index = pygit2.Index()
    own = [name for name in (IGNORE_FILE, REPOSITORY_FILE) if (directory / name).is_file()]
    names = [*list_manifest_paths(directory), *own]
    for name in names:
        path = directory / name
        try:
            is_link = path.is_symlink()
            content = os.fsencode(os.readlink(path)) if is_link else read_within(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        mode = FileMode.LINK if is_link else FileMode.BLOB
        index.add(pygit2.IndexEntry(f"{below}/{name}" if below else name, repository.create_blob(content), mode))
    if below and REPOSITORY_FILE not in own and (raw := _read_root_settings(directory)) is not None:
        index.add(pygit2.IndexEntry(REPOSITORY_FILE, repository.create_blob(raw), FileMode.BLOB))
    return index.write_tree(repository)


def _read_root_settings(directory: Path) -> bytes | None:
    """The settings at the root of the repository around ``directory``; None where there are none."""
    git_directory = pygit2.discover_repository(str(directory))
    root = open_git(Path(git_directory)).workdir if git_directory is not None else None
    file = Path(root or directory) / REPOSITORY_FILE
    return read_within(file) if file.is_file() and not file.is_symlink() else None
