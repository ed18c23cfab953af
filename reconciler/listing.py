"""Lists paths of a directory tree that another process or thread may change meanwhile."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path


def list_paths(top: Path, pattern: str) -> Iterator[Path]:
    """The paths below ``top`` that match ``pattern``, for instance ``*/*.json``, in order.

    A directory that vanishes meanwhile has no paths, and so has one that this user may not list. Path.glob raises
    FileNotFoundError then (Python 3.11); glob.glob hides every other error too, so that a listing which failed would
    pass for an empty one. Raises OSError if a directory cannot be read for another reason.
    """
    first, _, rest = pattern.partition("/")
    for name in sorted(fnmatch.filter(_list_names(top), first)):
        if rest:
            yield from list_paths(top / name, rest)
        else:
            yield top / name


def _list_names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
