"""Reads the checked version of files, to show the lines of findings."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.documents.limits import EXCERPT_BYTES
from reconciler.errors import ReconcilerError
from reconciler.model.revision import Revision
from reconciler.source.source import open_source

if TYPE_CHECKING:
    from reconciler.settings import Settings
    from reconciler.source.repository import Repository
    from reconciler.source.tree_diff import TreeEntry

Read = Callable[[str], bytes]
"""Returns the bytes of a file below the source's path; empty if it is unavailable, or too large to show."""


def make_file_reader(repository: Repository, revision: Revision) -> Read:
    """Return a reader of files of ``revision``."""

    # Findings are in the order of their files: without it, each would parse the whole folder again.
    @lru_cache(maxsize=1)
    def folder(path: str) -> dict[bytes, TreeEntry]:
        return repository.folder(revision.tree, path)

    def read(path: str) -> bytes:
        above, _, name = path.rpartition("/")
        try:
            entry = folder(above).get(name.encode())
            if entry is None or entry.symlink or repository.size(entry.id.hex()) > EXCERPT_BYTES:
                return b""
            return repository.read(entry.id.hex())
        except ReconcilerError:
            return b""

    return read


def reader_of(settings: Settings, name: str, commit: str) -> Read:
    """Return a reader of files at ``commit`` of the source ``name``, without a fetch."""
    source = next(source for source in settings.sources if source.name == name)
    try:
        repository = open_source(source, Path(settings.state)).repository
        return make_file_reader(repository, repository.resolve(commit))
    except ReconcilerError:
        return lambda _: b""


def repository_path(base: str, path: str) -> str:
    """``path`` from the root of the repository, if it is relative to ``base``."""
    return path if base in ("", ".") else f"{base.strip('/')}/{path}"
