"""Opens repositories with libgit2: regardless of their owner, and without user or system configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, Option, RepositoryOpenFlag

CACHE_BYTES = 128 * 1024
"""Bytes of objects that libgit2 caches in this process: the trees of the last commits, which the next one reads again.
It counts contents only, while small trees and commits take seven times as much. A daemon reads each commit once, so a
larger cache would only fill with old commits: 512 KiB became 4 MB after 400 commits, and no commit was faster."""
_LARGEST_TREE = 256 * 1024
"""The largest tree in bytes that is cached; libgit2's default is 4 KB, but the root is read again and again."""

_WINDOW_BYTES = 1024 * 1024
"""Bytes of a pack that libgit2 maps at once: whole packs otherwise, so that a daemon would grow with its repository."""
MAPPED_BYTES = 8 * _WINDOW_BYTES
"""Bytes of packs that libgit2 maps in this process. Reading 100,000 files with it takes as long as without."""


def lookup_name(text: str) -> str:
    """``text`` for a lookup by name: of a reference, in a tree or in a tree builder.

    pygit2 never releases the name of a lookup. An interned one is stored once; a daemon that polls every second would
    lose 5 MB a day.
    """
    return sys.intern(text)


def open_git(path: Path) -> pygit2.Repository:
    """Open the repository at ``path`` itself, not one above it. Raises pygit2.GitError if there is none.

    Nothing of a repository is ever run, so libgit2's check of its owner is off.
    """
    pygit2.option(Option.SET_OWNER_VALIDATION, 0)
    # Objects that our trees or commits refer to were just written, so they need no lookup.
    pygit2.option(Option.ENABLE_STRICT_OBJECT_CREATION, 0)
    pygit2.settings.cache_max_size(CACHE_BYTES)
    pygit2.settings.cache_object_limit(ObjectType.TREE, _LARGEST_TREE)
    pygit2.option(Option.SET_MWINDOW_SIZE, _WINDOW_BYTES)
    pygit2.option(Option.SET_MWINDOW_MAPPED_LIMIT, MAPPED_BYTES)
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)


class PackDirectory:
    """The packs of a repository. An open one should be opened anew when they change.

    libgit2 never closes a pack: it searches packs that git has merged or collected, and they keep their space on disk.
    """

    def __init__(self, gitdir: Path) -> None:
        self._path = gitdir / "objects" / "pack"
        self._time = self._modification_time()

    def has_changed(self) -> bool:
        """Whether packs were added or removed since the last call, or the start. It costs one system call."""
        former, self._time = self._time, self._modification_time()
        return self._time != former

    def _modification_time(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError:  # there is none, or the repository disappears
            return 0
