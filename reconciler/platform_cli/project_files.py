"""The files that a compose project names: only those below its directory, whatever links lead elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from reconciler.convert.compose.project import OutsideFileError, UnreadableFileError
from reconciler.documents.limits import LIMITS

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class ProjectFiles:
    """Reads the files of a project by their paths.

    A file is read if its resolved path is below ``directory``, or if ``allow_outside``; ``contents`` are those that are
    read already. ``outside`` are the paths that are not read for being elsewhere.
    """

    def __init__(self, directory: str, *, allow_outside: bool) -> None:
        self.contents: Mapping[str, bytes] = {}
        self.outside: list[str] = []
        self._root = os.path.realpath(directory or ".")
        self._allow_outside = allow_outside

    def read(self, path: str) -> bytes:
        """The content of the file at ``path``. Raises UnreadableFileError."""
        if path in self.contents:
            return self.contents[path]
        try:
            with self._opened(path) as descriptor:
                return _content(descriptor)
        except OSError as error:
            raise UnreadableFileError((error.strerror or "it cannot be read").lower()) from None
        except ValueError:
            raise UnreadableFileError("its name is none") from None

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        place = os.path.realpath(os.path.expanduser(path))
        below = os.path.relpath(place, self._root)
        if self._allow_outside:
            descriptor = os.open(place, _OPEN)
        elif below.split(os.sep)[0] == os.pardir:
            self.outside.append(path)
            raise OutsideFileError("it is outside of the directory of the project")
        else:
            descriptor = _open_below(self._root, below)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _open_below(root: str, path: str) -> int:
    """Open ``path``, which has no links, below ``root``, name by name: a link that has come meanwhile is an error."""
    *folders, name = path.split(os.sep)
    holder = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=holder)
            os.close(holder)
            holder = inner
        return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=holder)
    finally:
        os.close(holder)


def _content(descriptor: int) -> bytes:
    """What a regular file has; a pipe or a device may have no end."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFileError("it is no regular file")
    with open(descriptor, "rb", closefd=False) as file:
        # One byte more than its size, and not the limit: reading allocates as much as it may return.
        content = file.read(min(status.st_size, LIMITS.file_bytes) + 1)
    if len(content) > LIMITS.file_bytes:
        raise UnreadableFileError("it is too large")
    return content
