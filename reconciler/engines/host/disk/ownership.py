"""Ownership of a container's files: its user, and the group that owns mounted volumes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_error
from reconciler.private_files import make_directory

IDS = 65_536
"""The users, and the groups, that a user namespace has: those that images name."""


class IdRange(msgspec.Struct, frozen=True):
    """The ids of this host, from ``first`` on, that are users and groups 0 to 65,535 in a user namespace."""

    first: int
    count: int = IDS

    def __str__(self) -> str:
        return f"{self.first}:{self.count}"

    @property
    def last(self) -> int:
        """The last one."""
        return self.first + self.count - 1

    def of(self, number: int) -> int:
        """The id on this host of a user or group of the namespace."""
        return self.first + number

    def overlaps(self, first: int, count: int) -> bool:
        """Whether any of ``count`` ids from ``first`` on is among them."""
        return first <= self.last and self.first < first + count


class Owner(msgspec.Struct, frozen=True):
    """The user of a container, None for the daemon's, and its group (docs/platform/workload.md#users-and-groups).

    ``of_image``: each container has the user of its image, which is known only when it starts. ``ids`` are those of its
    user namespace, None without one. Then read-only files are the daemon's until it starts; what it writes to belongs
    on the disk to the users that it sees.
    """

    user: int | None = None
    group: int = 0
    of_image: bool = False
    ids: IdRange | None = None

    @property
    def uid(self) -> int:
        """The user id."""
        return os.geteuid() if self.user is None else self.user

    @property
    def other(self) -> bool:
        """Whether it is another user than the daemon's."""
        return self.uid != os.geteuid()


def set_owner(path: Path, owner: Owner, mode: int) -> None:
    """Give our ``path`` to ``owner``, with ``mode`` for the user and, if there is one, for the group.

    Without root it stays ours. New files in a directory that is writable for the group belong to the group too. Raises
    OSError.
    """
    if os.geteuid() == 0:
        os.chown(path, owner.uid, owner.group, follow_symlinks=False)
        mode |= (mode & stat.S_IRWXU) >> 3 if owner.group else 0
        mode |= stat.S_ISGID if mode & stat.S_IWGRP and path.is_dir() else 0
    path.chmod(mode)


def make_readable(path: Path, owner: Owner, mode: int) -> None:
    """Give our ``path`` to the user of ``owner`` with ``mode``, without group permissions. Raises OSError."""
    if os.geteuid() == 0 and owner.ids is None:
        os.chown(path, owner.uid, -1, follow_symlinks=False)
    path.chmod(mode & stat.S_IRWXU)


def chown_tree(path: Path, owner: Owner) -> None:
    """Give a directory and its content to ``owner`` if the directory has another owner; follows no symlink.

    Does nothing without root. Raises OSError.
    """
    stat_result = path.lstat()
    if not stat.S_ISDIR(stat_result.st_mode):
        raise NotADirectoryError(0, f"{path} is not a directory")
    if os.geteuid() != 0 or (stat_result.st_uid, stat_result.st_gid) == (owner.uid, owner.group):
        return
    _chown_content(path, owner.uid, owner.group)
    # The top directory changes last, so its owner shows that all is done.
    set_owner(path, owner, 0o700)


def make_shared(path: Path, owner: Owner) -> Path:
    """A directory that workloads write to: created if missing, and changed to ``owner`` if it has another owner.

    Returns it. Raises OSError.
    """
    if owner.of_image:
        make_for_images(path, owner, 0o700)
        return path
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    chown_tree(path, owner)
    return path


def make_for_images(path: Path, owner: Owner, mode: int) -> None:
    """Create a directory for users that are not known yet; one that is in use keeps its owner and its mode.

    Content that does not belong to the group of ``owner``, if there is one, is given to it. Raises OSError.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    stat_result = path.lstat()
    if not stat.S_ISDIR(stat_result.st_mode):
        raise NotADirectoryError(0, f"{path} is not a directory")
    ours = stat_result.st_uid == os.geteuid() and stat.S_IMODE(stat_result.st_mode) == 0o700
    if ours and not any(path.iterdir()):
        # It is new, maybe from a start that a crash interrupted here.
        set_owner(path, owner, mode)
    elif os.geteuid() == 0 and owner.group not in (0, stat_result.st_gid):
        _chown_content(path, -1, owner.group)
        set_owner(path, Owner(stat_result.st_uid, owner.group), stat.S_IMODE(stat_result.st_mode) | stat.S_IRWXU)


def chown_new(path: Path, user: int) -> None:
    """Give a directory of root and its content to ``user``, and leave the groups; follows no symlink. Raises OSError.

    A directory that another user has got already stays.
    """
    if path.lstat().st_uid == 0:
        _chown_content(path, user, -1)
        os.chown(path, user, -1, follow_symlinks=False)


def chown_all(path: Path, user: int) -> None:
    """Give a file, or a directory with its content, to ``user``; follows no symlink. Raises OSError."""
    if path.is_dir():
        _chown_content(path, user, -1)
    os.chown(path, user, -1, follow_symlinks=False)


def _chown_content(path: Path, user: int, group: int) -> None:
    """Change the owner of everything in a directory; -1 changes nothing. Raises OSError."""
    for _, folders, files, here in os.fwalk(path, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=here, follow_symlinks=False)


def allow_traversal(path: Path, owner: Owner) -> None:
    """Let ``owner`` traverse our directory to reach its own, without listing what else is there."""
    if owner.other:
        path.chmod(0o711)


def make_private(root: Path) -> None:
    """Create the directory of a location and its directories that are private to the daemon. Raises EngineError."""
    try:
        make_directory(root.parent)
        for folder in (root, *(root / name for name in ("logs", "replicas", "run", "tokens", "usage"))):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise write_error(f"the directory {root} cannot be made", error) from None
