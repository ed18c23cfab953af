"""Files as they were judged, for showing the lines that findings are about."""

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
"""The bytes of the file at a path below the source's; nothing where they cannot be had, or are too many to show."""


def reader(repository: Repository, revision: Revision) -> Read:
    """Reads files as ``revision`` has them."""

    def read(path: str) -> bytes:
        try:
            blob = repository.blob(revision.tree, path)
            return repository.read(blob) if blob and repository.size(blob) <= EXCERPT_BYTES else b""
        except ReconcilerError:
            return b""

    return read


def reader_of(settings: Settings, name: str, commit: str) -> Read:
    """Reads files as ``commit`` of the source ``name`` has them, without asking any remote for it."""
    source = next(source for source in settings.sources if source.name == name)
    try:
        repository = open_source(source, Path(settings.state)).repository
        return reader(repository, repository.resolve(commit))
    except ReconcilerError:
        return lambda _: b""


def repository_path(base: str, path: str) -> str:
    """``path`` from the root of the repository on, where it is one below ``base``."""
    return path if base in ("", ".") else f"{base.strip('/')}/{path}"
