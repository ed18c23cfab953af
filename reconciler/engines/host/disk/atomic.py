"""Writes small files completely or not at all, and in place if the disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk."""
_BLOCK = 512


def write_atomic(path: Path, content: bytes, mode: int) -> None:
    """Replace the content of ``path``; create its missing directory, for the daemon alone.

    The file survives a kill of the daemon. It need not survive a power cut, which ends everything that it describes. If
    a full disk has no room for a second file, a single write overwrites the first one, provided that its blocks
    suffice. JSON then ends with spaces, and a reader may see a part of each version. Raises EngineError.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        make_directory(path.parent)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if error.errno not in FULL or not _overwrite_file(path, content):
            raise write_error(f"{path} cannot be written", error) from None


def write_durable(path: Path, content: bytes) -> None:
    """Replace the content of our ``path`` so that it survives a power cut, or change nothing. Raises OSError.

    On a full disk it is overwritten as ``write_atomic`` does, so that deletes can be recorded.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if error.errno not in FULL or not _overwrite_file(path, content):
            raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Write the entries of a directory to the disk: files that were created, renamed or removed. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _overwrite_file(path: Path, content: bytes) -> bool:
    """Write ``content`` into the blocks that the file already has; return whether that succeeded."""
    try:
        with open(path, "r+b", buffering=0) as file:
            stat = os.fstat(file.fileno())
            return len(content) <= stat.st_blocks * _BLOCK and file.write(content.ljust(stat.st_size)) > 0
    except OSError:
        return False


@contextmanager
def write_failures(what: str) -> Iterator[None]:
    """Raise an EngineError that begins with ``what`` in place of an OSError."""
    try:
        yield
    except OSError as error:
        raise write_error(what, error) from None


def write_error(what: str, error: OSError) -> EngineError:
    """An EngineError for ``error``. Its reason is DiskFull, PermissionDenied, or StateWriteFailed for all else."""
    reason = dict.fromkeys(FULL, Reason.DISK_FULL) | dict.fromkeys(
        (errno.EACCES, errno.EPERM), Reason.PERMISSION_DENIED
    )
    return EngineError(f"{what}: {error.strerror}", reason=reason.get(error.errno or 0, Reason.STATE_WRITE_FAILED))
