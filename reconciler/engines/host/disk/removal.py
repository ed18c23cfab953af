"""Removes directories that workloads wrote to: whatever they contain, nothing outside is touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from secrets import token_hex

_AS_IT_IS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove ``path`` and its content, if it exists.

    Follows no symlink. Directories may be arbitrarily deep, and our own may lack permissions: each is moved to the top
    directory and emptied there. Raises OSError.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
    else:
        return
    with _open_directory(str(path), None) as top:
        _empty_directory(top)
    os.rmdir(path)


def _empty_directory(top: int) -> None:
    """Remove the content of ``top``, an open directory."""
    mark = token_hex(8)
    fresh = (f".removed-{mark}-{number}" for number in count())
    while names := _list_names(top):
        for name in names:
            if not _is_gone(name, top):
                _remove_directory(name, top, fresh)


def _list_names(directory: int) -> list[str]:
    """What is in an open directory."""
    # btrfs lists only what was there when the directory was opened or last rewound.
    os.lseek(directory, 0, os.SEEK_SET)
    return os.listdir(directory)


def _remove_directory(name: str, top: int, fresh: Iterator[str]) -> None:
    """Remove the directory ``name`` in ``top``; its subdirectories are moved to ``top`` under ``fresh`` names."""
    with _open_directory(name, top) as inner:
        for text in os.listdir(inner):
            if not _is_gone(text, inner):
                _open_up(text, inner)
                os.rename(text, next(fresh), src_dir_fd=inner, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


def _is_gone(name: str, parent: int) -> bool:
    """Remove ``name`` unless it is a directory; return whether it was removed."""
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        return False
    return True


@contextmanager
def _open_directory(name: str, parent: int | None) -> Iterator[int]:
    _open_up(name, parent)
    descriptor = os.open(name, _LISTED, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_up(name: str, parent: int | None) -> None:
    """Give the owner all permissions on a directory, which removing its content requires."""
    descriptor = os.open(name, _AS_IT_IS, dir_fd=parent)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)
    finally:
        os.close(descriptor)
