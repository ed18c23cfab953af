"""Frees the disk space of the part of a growing file that has been read; the file keeps its size."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

FreeRange = Callable[[int, int, int], bool]
"""Frees bytes ``begin`` to ``end`` of an open file, which keeps its size; False if the file system cannot."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


def punch_hole(file: int, begin: int, end: int) -> bool:
    """Punch a hole over bytes ``begin`` to ``end`` (Linux); False if that is impossible here. Raises OSError.

    An OSError is a failure that may be temporary.
    """
    if end <= begin:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    while fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin):
        number = ctypes.get_errno()
        if number in _CANNOT:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def first_written(file: int, size: int) -> int:
    """The offset of the first data in a file of ``size`` bytes; punched holes are skipped."""
    try:
        at = os.lseek(file, 0, os.SEEK_DATA) if size else 0
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return 0
    while at and at < size:
        piece = os.pread(file, 1 << 16, at)
        data = piece.lstrip(b"\0")
        at += len(piece) - len(data)
        if data or not piece:
            break
    return at
