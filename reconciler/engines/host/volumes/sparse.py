"""Copies of image files, and their checksums: holes stay holes, and cost nothing."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from reconciler.engines.host.volumes.freeze import freeze_timeout
from reconciler.engines.host.volumes.kernel import clone_file

_CHUNK = 8 << 20
_BLOCK = 64 << 10
_ZEROS = bytes(_BLOCK)
_BYTES = 512


def copy_image(source: Path, target: Path, deadline: float | None = None) -> None:
    """Copy an image to ``target``, which does not exist; blocks are shared if the file system can.

    The copy need not be on the disk when this returns. Raises OSError, and EngineError at ``deadline``,
    of the monotonic clock.
    """
    with source.open("rb") as read, open(target, "xb", opener=_open_private_file) as written:
        if clone_file(read.fileno(), written.fileno()):
            return
        size = os.fstat(read.fileno()).st_size
        os.truncate(written.fileno(), size)
        for start, end in list_extents(read.fileno(), size):
            for offset in range(start, end, _CHUNK):
                if deadline is not None and time.monotonic() > deadline:
                    raise freeze_timeout(source)
                _copy_range(read.fileno(), written.fileno(), offset, min(offset + _CHUNK, end))


def can_clone(folder: Path) -> bool:
    """Whether files in ``folder`` can share blocks. Raises OSError."""
    source, target = folder / "clone-source", folder / "clone-target"
    try:
        source.write_bytes(bytes(1 << 12))
        with source.open("rb") as read, target.open("wb") as written:
            return clone_file(read.fileno(), written.fileno())
    finally:
        for path in (source, target):
            path.unlink(missing_ok=True)


def digest_image(path: Path) -> str:
    """A checksum of an image: of its size, and of position and content of each block that is not zero."""
    checksum = blake2b(digest_size=32)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        checksum.update(struct.pack("=Q", size))
        done = 0
        for start, end in list_extents(file.fileno(), size):
            for offset in range(max(done, start - start % _BLOCK), end, _BLOCK):
                done = offset + _BLOCK
                block = os.pread(file.fileno(), _BLOCK, offset)
                if block != _ZEROS[: len(block)]:
                    checksum.update(struct.pack("=Q", offset))
                    checksum.update(block)
    return checksum.hexdigest()


def get_allocated_bytes(path: Path) -> int:
    """Bytes of the disk that an image takes; 0 if it does not exist."""
    with suppress(FileNotFoundError):
        return path.stat().st_blocks * _BYTES
    return 0


def list_extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part of the open ``file`` of ``size`` bytes that is no hole. Raises OSError."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(file, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        done = os.copy_file_range(source, target, end - start, start, start)
        if not done:
            raise OSError(errno.EIO, "the image became shorter while it was copied")
        start += done


def _open_private_file(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def extend_file(image: Path, size: int) -> None:
    """Make a sparse file ``size`` bytes long, unless it is as long. Raises OSError."""
    if image.stat().st_size < size:
        os.truncate(image, size)
