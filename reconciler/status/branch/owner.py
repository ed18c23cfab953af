"""Writing into a repository of another user: root does it as that user, or symlinks there would lead root anywhere."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import SourceError

_QUERY = 0xFFFFFFFF
"""No user's id: the kernel changes nothing and answers with the present one."""


def owner_of(repository: Path) -> tuple[int, int] | None:
    """User and group to write into ``repository`` as, where this process is root and another user owns it.

    None where this process writes as it is. Raises SourceError where there is no such directory.
    """
    if os.geteuid() != 0:
        return None
    try:
        found = repository.stat()
    except OSError as fault:
        raise SourceError(f"status cannot be written to {repository}: {fault.strerror}") from None
    return (found.st_uid, found.st_gid) if found.st_uid != 0 else None


@contextmanager
def file_access_of(repository: Path) -> Iterator[None]:
    """Within the block this thread reads and writes files as the owner of ``repository``, where this process is root.

    Other threads stay root, and so do records and sockets that are open. Raises SourceError where the kernel refuses.
    """
    owner = owner_of(repository)
    if owner is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = owner
    before = os.getegid()
    try:
        # The group first: without the rights of root it cannot be changed any more.
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
