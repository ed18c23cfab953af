"""Makes a copy of an image equal to it again: all of both is compared, and what differs is copied."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reconciler.engines.host.volumes.freeze import freeze_timeout
from reconciler.engines.host.volumes.sparse import list_extents

_CHUNK = 1 << 20
"""Bytes that are read at once: they are compared while the processor still has them at hand."""
_BLOCK = 64 << 10
"""Bytes that are copied where anything in them differs."""
_WORKERS = min(4, os.cpu_count() or 1)
"""Reading and comparing is bound by one processor, if the host has the files in memory."""


def patch_image(source: Path, target: Path, deadline: float | None = None) -> int:
    """Make ``target``, an older copy of the image ``source``, equal to it; returns the bytes that were copied.

    Any file may be the older copy. The result need not be on the disk when this returns. Raises OSError, and
    EngineError FreezeTimeout at ``deadline``, of the monotonic clock.
    """
    with source.open("rb", buffering=0) as read, target.open("r+b", buffering=0) as written:
        size = os.fstat(read.fileno()).st_size
        os.ftruncate(written.fileno(), size)
        parts = list(_list_filled_parts(read.fileno(), written.fileno(), size))
        patch = _Patch(source, read.fileno(), written.fileno(), deadline)
        if len(parts) < _WORKERS:
            return patch.run(parts)
        with ThreadPoolExecutor(_WORKERS) as pool:
            return sum(pool.map(patch.run, [parts[first::_WORKERS] for first in range(_WORKERS)]))


class _Patch:
    """One pass over two open files, of which several threads take a share each."""

    def __init__(self, name: Path, source: int, target: int, deadline: float | None) -> None:
        self._name = name
        self._source = source
        self._target = target
        self._deadline = deadline

    def run(self, parts: Sequence[tuple[int, int]]) -> int:
        """Copy what differs in ``parts``; returns the bytes. Raises OSError, and EngineError at the deadline."""
        ours, theirs = bytearray(_CHUNK), bytearray(_CHUNK)
        copied = 0
        for start, end in parts:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise freeze_timeout(self._name)
            if end - start != len(ours):
                ours, theirs = bytearray(end - start), bytearray(end - start)
            _read_block(self._source, ours, start)
            _read_block(self._target, theirs, start)
            if ours != theirs:
                copied += self._copy_blocks(ours, theirs, start)
        return copied

    def _copy_blocks(self, ours: bytearray, theirs: bytearray, start: int) -> int:
        copied = 0
        for at in range(0, len(ours), _BLOCK):
            block = ours[at : at + _BLOCK]
            if block != theirs[at : at + _BLOCK]:
                _write_block(self._target, block, start + at)
                copied += len(block)
        return copied


def _list_filled_parts(source: int, target: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part in which one of the files has data, in order."""
    done = 0
    for start, end in sorted([*list_extents(source, size), *list_extents(target, size)]):
        first = max(start - start % _BLOCK, done)
        for offset in range(first, end, _CHUNK):
            done = min(offset + _CHUNK, end)
            yield offset, done


def _read_block(file: int, buffer: bytearray, start: int) -> None:
    """Fill ``buffer`` from ``start``; what lies beyond the end is zero, as in a hole."""
    view, done = memoryview(buffer), 0
    while done < len(buffer):
        count = os.preadv(file, [view[done:]], start + done)
        if not count:
            buffer[done:] = bytes(len(buffer) - done)
            return
        done += count


def _write_block(file: int, block: bytearray, start: int) -> None:
    view, done = memoryview(block), 0
    while done < len(block):
        done += os.pwrite(file, view[done:], start + done)
