"""Opens repositories with libgit2: regardless of their owner, and without user or system configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, Option, RepositoryOpenFlag

from reconciler.errors import SourceError
from reconciler.listing import list_paths

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


_OTHER_HASH = "unknown object format"
OTHER_HASH = (
    "has objects that are named by SHA-256, and only repositories with SHA-1, Git's default, can be read: make one "
    "with `git init --object-format=sha1`, and commit the manifests there"
)
"""What is said of such a repository, after its place."""


def lookup_name(text: str) -> str:
    """``text`` for a lookup by name: of a reference, in a tree or in a tree builder.

    pygit2 never releases the name of a lookup. An interned one is stored once; a daemon that polls every second would
    lose 5 MB a day.
    """
    return sys.intern(text)


def open_git(path: Path) -> pygit2.Repository:
    """Open the repository at ``path`` itself, not one above it. Raises pygit2.GitError if there is none.

    Nothing of a repository is ever run, so libgit2's check of its owner is off. Raises SourceError for a repository
    whose objects are named by SHA-256, which libgit2 cannot read.
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
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as fault:
        if _OTHER_HASH in str(fault):
            raise SourceError(f"{path} {OTHER_HASH}") from None
        raise


def describe_clone(gitdir: Path) -> str:
    """What a clone leaves out and how to get it, after a comma; "" for a whole one.

    ``gitdir`` has the objects. A partial clone lacks objects, a shallow one the commits before its first.
    """
    if next(list_paths(gitdir / "objects" / "pack", "*.promisor"), None) is not None:
        return (
            ", which is a partial clone: fetch what it lacks there, by `git config --unset "
            "remote.origin.partialclonefilter; git fetch --refetch`, or clone it without --filter"
        )
    if (gitdir / "shallow").is_file():
        return ", which is a shallow clone: fetch the older commits there, by `git fetch --unshallow`"
    return ""


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
