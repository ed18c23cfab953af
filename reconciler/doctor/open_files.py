"""Files and sockets of the state directory that any user of the host can write to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from reconciler.checks import Check, make_problem

ABOUT = "state directory"
MOST = 10
"""Paths that are reported; further ones have the same cause."""


def check_open_files(state: Path) -> Iterator[Check]:
    """Report what every user can write to below ``state``, as far as this user may look."""
    try:
        owner = state.stat().st_uid
    except OSError:
        return
    for path in islice(_open_paths(state, owner), MOST):
        what = "every user of this host may write to"
        yield make_problem(ABOUT, f"{what} {path} (mode {stat.S_IMODE(path.lstat().st_mode):o})", f"chmod o-w {path}")


def _open_paths(directory: Path, owner: int) -> Iterator[Path]:
    """Paths below ``directory``; what is in a directory that others cannot enter, or of a workload, does not count."""
    try:
        stat_result = directory.stat()
        if stat_result.st_uid != owner or not stat_result.st_mode & stat.S_IXOTH:
            return
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        path = Path(entry.path)
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield path
        if stat.S_ISDIR(mode):
            yield from _open_paths(path, owner)
