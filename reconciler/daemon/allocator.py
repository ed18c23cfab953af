"""The memory allocator of the C library: a daemon's memory levels off, and large runs return what they have freed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MMAP_THRESHOLD = 128 * 1024
"""Bytes from which malloc maps a block on its own, and unmaps it when it is freed: the value that glibc starts with."""
_M_MMAP_THRESHOLD = -3

GROWTH = 16 * 1024 * 1024
"""Bytes of growth after which it is worth to return freed memory."""


def fix_mmap_threshold() -> None:
    """Keep large blocks out of malloc's heap, so that a daemon's memory levels off; other C libraries ignore it.

    By default, the first free of a large block makes glibc take blocks of that size from the heap. Python replaces its
    table of interned strings (2 MB) every few thousand paths. In the heap, small blocks soon occupy the hole of the old
    table, so that the next table extends the heap: by 2 MB every five minutes of commits. asyncio's buffers for reads
    (256 KB) leave smaller holes.
    """
    mallopt = _c_function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)


class FreedMemory:
    """The memory that this process has freed and malloc keeps: 75 MB after a change in a file of 4,000 documents.

    Other C libraries than glibc return memory by themselves, or never.
    """

    def __init__(self) -> None:
        self._floor = resident()

    def is_worth_returning(self) -> bool:
        """Whether the process has grown by GROWTH since it last returned memory."""
        size = resident()
        self._floor = min(self._floor, size)
        return size - self._floor >= GROWTH

    def give_back(self) -> None:
        """Return the freed pages to the system: some milliseconds for 100 MB, in which other threads go on."""
        malloc_trim = _c_function("malloc_trim")
        if malloc_trim is not None:
            malloc_trim(0)
        self._floor = resident()


def resident() -> int:
    """The bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _c_function(name: str) -> Any:
    """A function of the C library; None if it has none of that name."""
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
