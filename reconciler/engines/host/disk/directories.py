"""Directories that the users of containers traverse: created with their parents, and replaced whole."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.private_files import check_state_exists, make_directory

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def file_name(name: str) -> str:
    """``name`` as a file name. Raises OSError if it would lead to another directory."""
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        raise OSError(0, f"{name[:60]!r} is not the name of a file")
    return name


TRAVERSABLE = 0o711
"""The mode of directories that others traverse, but cannot list."""
LISTED = 0o755
"""The mode of directories that others list."""


def make_traversable(base: Path, path: Path, mode: int = TRAVERSABLE) -> None:
    """Create the directories from below ``base`` down to ``path`` with ``mode``; one of ours that lacks it gets it.

    So their modes do not depend on who has created them first. ``base`` stays as it is, and is created for the daemon
    alone if it is missing. Follows no symlink below it. Raises OSError.
    """
    check_state_exists(path)
    if not base.is_dir():
        make_directory(base)
    here = os.open(base, _DIRECTORY)
    try:
        for name in path.relative_to(base).parts:
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=here)
            above, here = here, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(above)
            _add_permissions(here, mode)
    finally:
        os.close(here)


def _add_permissions(directory: int, mode: int) -> None:
    """Add the permissions of ``mode`` to an open directory, if it is ours."""
    stat_result = os.fstat(directory)
    if stat_result.st_uid == os.geteuid() and mode & ~stat_result.st_mode:
        os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(stat_result.st_mode) | mode)


def make_replacement(path: Path) -> Path:
    """Create an empty temporary directory beside ``path``, for ``replace_directory``. Raises OSError."""
    make_traversable(path.parent.parent, path.parent)
    fresh = path.with_name(f".{path.name}.new")
    remove_tree(fresh)
    fresh.mkdir(mode=0o711)
    return fresh


def replace_directory(path: Path, fresh: Path) -> None:
    """Replace ``path``, if it exists, with ``fresh``. Raises OSError."""
    old = path.with_name(f".{path.name}.old")
    remove_tree(old)
    with suppress(FileNotFoundError):
        path.rename(old)
    fresh.rename(path)
    remove_tree(old)


def remove_empty(path: Path, base: Path) -> None:
    """Remove ``path`` and its parents up to ``base``, as long as they are empty."""
    with suppress(OSError):
        while path.is_relative_to(base):
            path.rmdir()
            path = path.parent
