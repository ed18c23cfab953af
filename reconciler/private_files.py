"""Files and directories of the state directory: no symbolic link is followed, and nothing is open to others."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from reconciler.errors import UsageError

_locked: set[Path] = set()


def set_locked(directory: Path, locked: bool) -> None:
    """Note that this process holds the state directory ``directory``, or holds it no longer."""
    (_locked.add if locked else _locked.discard)(directory)


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Make the directory ``path`` where it is missing, and those above it, all with ``mode``.

    ``Path.mkdir(parents=True)`` would make those with the modes that the umask leaves, open to all. Raises OSError,
    also below a state directory that this process holds and somebody has deleted: it is not made a second time.
    """
    check_state_exists(path)
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=mode, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)


def check_state_exists(path: Path) -> None:
    """Raise FileNotFoundError where ``path`` lies below a state directory that this process holds and that is gone."""
    for directory in _locked:
        if directory in path.parents and not directory.exists():
            raise FileNotFoundError(errno.ENOENT, "the state directory was deleted", str(directory))


def remove_own(path: Path, inode: int) -> bool:
    """Remove ``path`` where it is still the one with ``inode``, and not somebody else's; whether it was."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()
            return True
    return False


def check_regular(path: Path) -> None:
    """Raise UsageError where a symbolic link, or anything but a file, is at ``path``; nothing there is fine.

    Raises OSError where that cannot be found out.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    refuse_irregular(path, found)


def refuse_irregular(path: Path, found: os.stat_result) -> None:
    """Raise UsageError unless ``found``, the status of ``path``, is that of a regular file."""
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(f"{path} is a symbolic link, and none is followed in the state directory: take it away")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a file: take it away")


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of the file ``path``, made with mode 0600 where ``flags`` have O_CREAT; no link is followed.

    Raises UsageError where a link, or anything but a file with one name, is there, and OSError.
    """
    check_regular(path)
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(file)
        refuse_irregular(path, found)
        if found.st_nlink > 1:
            raise UsageError(f"{path} has a second name (a hard link), so it is not written to: take it away")
    except UsageError:
        os.close(file)
        raise
    return file
