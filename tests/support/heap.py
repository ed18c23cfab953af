"""What malloc of the C library holds: mallinfo2, in bytes."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

_FIELDS = 10
_ARENA, _MAPPED, _IN_USE = 0, 4, 7


class Heap(NamedTuple):
    """Bytes of the heap, those mapped outside it, and those of the heap in use, by libgit2 too.

    Small objects of Python are in none of them.
    """

    size: int
    mapped: int
    in_use: int


class _Info(ctypes.Structure):
    """``struct mallinfo2``."""

    _fields_ = (("values", ctypes.c_size_t * _FIELDS),)


def heap() -> Heap:
    """The heap of this process now."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Info
    values = libc.mallinfo2().values
    return Heap(int(values[_ARENA]), int(values[_MAPPED]), int(values[_IN_USE]))
