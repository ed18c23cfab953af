"""What is changed in a work tree and not committed: it is not read, so people are told of it."""

from __future__ import annotations

from pathlib import Path

import pygit2

from reconciler.model.revision import SUFFIXES
from reconciler.settings import SourceSettings
from reconciler.source.file_filter import REPOSITORY_FILE
from reconciler.source.libgit import open_git

_MOST_FILES = 20_000
"""In a larger work tree, comparing all files would take longer than the plan."""


def list_uncommitted(source: SourceSettings) -> list[str]:
    """The manifests in the work tree of a local source that differ from the commit, sorted.

    None where the source follows another branch than the one that is checked out, or the work tree is too large.
    """
    try:
        repository = open_git(Path(source.url))
        followed = [source.commit or source.tag, source.branch]
        if repository.is_bare or repository.head_is_unborn or repository.head.shorthand not in followed:
            return []
        if len(repository.index) > _MOST_FILES:
            return []
        statuses = repository.status()
    except pygit2.GitError:
        return []
    unchanged = pygit2.GIT_STATUS_CURRENT | pygit2.GIT_STATUS_IGNORED
    return sorted(path for path, status in statuses.items() if status & ~unchanged and _is_manifest(source, path))


def _is_manifest(source: SourceSettings, path: str) -> bool:
    below = f"{source.path.strip('/')}/" if source.path.strip("/.") else ""
    if path == f"{below}{REPOSITORY_FILE}":
        return True
    hidden = any(part.startswith(".") for part in path.split("/"))
    return path.endswith(SUFFIXES) and path.startswith(below) and not hidden
