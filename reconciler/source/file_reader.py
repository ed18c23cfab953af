"""Reads the checked version of files, to show the lines of findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.documents.limits import EXCERPT_BYTES
from reconciler.errors import ReconcilerError
from reconciler.model.revision import Revision
from reconciler.source.source import open_source

if TYPE_CHECKING:
    from reconciler.settings import Settings
    from reconciler.source.repository import Repository

Read = Callable[[str], bytes]
"""Returns the bytes of a file below the source's path; empty if it is unavailable, or too large to show."""


def reader(repository: Repository, revision: Revision) -> Read:
    """Return a reader of files of ``revision``."""

    def read(path: str) -> bytes:
        try:
            blob = repository.blob(revision.tree, path)
            return repository.read(blob) if blob and repository.size(blob) <= EXCERPT_BYTES else b""
        except ReconcilerError:
            return b""

    return read


def reader_of(settings: Settings, name: str, commit: str) -> Read:
    """Return a reader of files at ``commit`` of the source ``name``, without a fetch."""
    source = next(source for source in settings.sources if source.name == name)
    try:
        repository = open_source(source, Path(settings.state)).repository
        return reader(repository, repository.resolve(commit))
    except ReconcilerError:
        return lambda _: b""


def repository_path(base: str, path: str) -> str:
    """``path`` from the root of the repository, if it is relative to ``base``."""
    return path if base in ("", ".") else f"{base.strip('/')}/{path}"
