"""Writes into another user's repository as that user, since symlinks there could lead root to any file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import SourceError

_QUERY = 0xFFFFFFFF
"""An invalid user id: the kernel changes nothing and returns the current one."""


def owner_of(repository: Path) -> tuple[int, int] | None:
    """User and group for writes into ``repository``, if this process is root and another user owns it.

    Otherwise None: this process writes as itself. Raises SourceError if the directory does not exist.
    """
    if os.geteuid() != 0:
        return None
    try:
        stat = repository.stat()
    except OSError as fault:
        raise SourceError(f"status cannot be written to {repository}: {fault.strerror}") from None
    return (stat.st_uid, stat.st_gid) if stat.st_uid != 0 else None


@contextmanager
def file_access_of(repository: Path) -> Iterator[None]:
    """In this context a root process accesses files, in this thread only, as the owner of ``repository``.

    Other threads stay root, and so do open records and sockets. Raises SourceError if the kernel refuses.
    """
    owner = owner_of(repository)
    if owner is None:
        yield
        return
    import ctypes  # It takes 3 ms, and only root in a repository of another user needs it.

    libc = ctypes.CDLL(None, use_errno=True)
    user, group = owner
    before = os.getegid()
    try:
        # The group first: without root's rights it could not be changed afterwards.
        libc.setfsgid(group)
        libc.setfsuid(user)
        if libc.setfsuid(ctypes.c_uint(_QUERY)) != user:
            raise SourceError(
                f"status cannot be written to {repository} as its owner, user {user}; set readOnly for the source"
            )
        yield
    finally:
        libc.setfsuid(0)
        libc.setfsgid(before)
