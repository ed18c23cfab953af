"""The one way a repository is opened with libgit2: as it is, whoever owns it, and with nobody's configuration."""

from __future__ import annotations

from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, Option, RepositoryOpenFlag

_CACHE_BYTES = 32 * 1024 * 1024
_LARGEST_TREE = 256 * 1024
"""Bytes of a tree that is kept, where libgit2 keeps those of 4 KB: the root is asked for again and again."""


def open_git(path: Path) -> pygit2.Repository:
    """Open the repository at ``path`` itself, not one above it. Raises pygit2.GitError where there is none.

    Nothing of a repository is ever run, so libgit2's check of its owner is off (design: Source).
    """
    pygit2.option(Option.SET_OWNER_VALIDATION, 0)
    # Whatever a tree or commit of ours names was written just before: it need not be looked for.
    pygit2.option(Option.ENABLE_STRICT_OBJECT_CREATION, 0)
    pygit2.settings.cache_max_size(_CACHE_BYTES)
    pygit2.settings.cache_object_limit(ObjectType.TREE, _LARGEST_TREE)
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
