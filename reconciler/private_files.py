"""Files, directories and sockets of the state directory: no symbolic link is followed, and no other user gets in."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import UsageError

_CREDENTIALS = struct.Struct("3i")
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)
"""Room for the credentials of the sender, and for no descriptor that it may send."""


_locked: set[Path] = set()


def set_locked(directory: Path, locked: bool) -> None:
    """Record whether this process holds the lock of the state directory ``directory``."""
    (_locked.add if locked else _locked.discard)(directory)


def make_directory(path: Path) -> None:
    """Make the directory ``path`` if it is missing, and its parents, all for this user alone.

    ``Path.mkdir(parents=True)`` would give the parents the modes of the umask, open to all. Raises OSError, also for
    a locked state directory that was deleted, and below it: it is never made a second time.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        check_state_exists(folder)  # one that goes later fails the next step
        folder.mkdir(mode=0o700, exist_ok=True)


def check_state_exists(path: Path) -> None:
    """Raise FileNotFoundError if ``path`` is a locked state directory that was deleted, or below one."""
    for directory in _locked:
        if directory in (path, *path.parents) and not directory.exists():
            raise FileNotFoundError(errno.ENOENT, "the state directory was deleted", str(directory))


def remove_own(path: Path, inode: int) -> bool:
    """Remove ``path`` if it still has ``inode``; returns whether it had. Another process may have replaced it."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()
            return True
    return False


def check_regular(path: Path) -> None:
    """Raise UsageError if ``path`` exists and is not a regular file.

    Raises OSError if its status cannot be read.
    """
    try:
        stat_result = path.lstat()
    except FileNotFoundError:
        return
    refuse_irregular(path, stat_result)


def refuse_irregular(path: Path, stat_result: os.stat_result) -> None:
    """Raise UsageError unless ``stat_result``, the status of ``path``, is that of a regular file."""
    if stat.S_ISLNK(stat_result.st_mode):
        raise UsageError(f"{path} is a symbolic link, and none is followed in the state directory: take it away")
    if not stat.S_ISREG(stat_result.st_mode):
        raise UsageError(f"{path} is not a file: take it away")


def open_regular(path: Path, flags: int) -> int:
    """Open the file ``path``, created with mode 0600 if ``flags`` have O_CREAT; follows no link.

    Raises UsageError if ``path`` is not a regular file with one name, and OSError.
    """
    check_regular(path)
    # Emptied after the checks, or a file of somebody else that has this as its second name would be.
    file = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        stat_result = os.fstat(file)
        refuse_irregular(path, stat_result)
        if stat_result.st_nlink > 1:
            raise UsageError(f"{path} has a second name (a hard link), so it is not written to: take it away")
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except (UsageError, OSError):
        os.close(file)
        raise
    return file


class Sender(NamedTuple):
    """The process that sent a datagram, and its user and group."""

    pid: int
    uid: int
    gid: int


def name_senders(receiver: socket.socket) -> None:
    """Let the kernel name the sender of each datagram; call it before ``receiver`` is bound."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def receive_datagram(receiver: socket.socket, size: int) -> tuple[bytes, Sender | None]:
    """The next datagram, of which at most ``size`` bytes are read, and its sender; None if the kernel names none.

    Raises BlockingIOError if there is none, and OSError.
    """
    data, ancillary, _flags, _address = receiver.recvmsg(size, _SPACE)
    for level, kind, content in ancillary:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            return data, Sender(*_CREDENTIALS.unpack(content))
    return data, None
