"""Reads the files, directories and standard input that a command names, and files that those name."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Never

from reconciler.documents.limits import LIMITS, read_within, shown_size
from reconciler.errors import MissingFileError, OutsideFileError, UnreadableFileError, UsageError
from reconciler.model.revision import SUFFIXES

STDIN = "-"
"""The name of standard input."""
_STEP_SECONDS = 0.5
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MOST_ADVICE = 100
"""The most files of a directory that are looked at for what they are."""

Advice = Callable[[str, bytes], str]
"""Path, content → a sentence for a file that the command does not take, "" for one that it does."""


def read_files(names: Sequence[str], others: tuple[str, ...] = (), advice: Advice | None = None) -> dict[str, bytes]:
    """Path → content of the files in ``names``: files, directories with all below them, ``-`` for standard input.

    Of a directory, only YAML and JSON, and files whose names end in one of ``others``. Raises UsageError where one
    cannot be read or a directory holds none, with the first ``advice`` for what is there instead.
    """
    contents: dict[str, bytes] = {}
    suffixes = (*SUFFIXES, *others)
    for name in names:
        if name == STDIN:
            contents["stdin"] = read_file(name)
            continue
        paths = sorted(_list_files_below(name, suffixes)) if os.path.isdir(name) else [name]
        if not paths:
            hint = advice_below(name, advice) if advice else ""
            raise UsageError(f"{name} has nothing to read: no file below it ends in {', '.join(suffixes)}{hint}")
        contents |= {path: read_file(path) for path in paths}
    return contents


def advice_below(directory: str, advice: Advice) -> str:
    """The first ``advice`` for a file below ``directory``, behind a semicolon; "" without one. Raises UsageError."""
    for path in sorted(_list_files_below(directory, ("",)))[:_MOST_ADVICE]:
        if os.path.isfile(path) and (words := advice(path, read_file(path))):
            return f"; {words}"
    return ""


def read_beside(contents: Mapping[str, bytes], directories: Callable[[str], Sequence[str]]) -> dict[str, bytes]:
    """``contents`` with the `.conf` files in the ``directories`` of each path; links are not followed.

    Raises UsageError where one cannot be read.
    """
    files = dict(contents)
    for folder in dict.fromkeys(directory for path in contents for directory in directories(path)):
        if os.path.isdir(folder) and not os.path.islink(folder):
            places = (os.path.join(folder, name) for name in sorted(_list_directory(folder)) if name.endswith(".conf"))
            files |= {text: read_file(text) for text in places if os.path.isfile(text) and not os.path.islink(text)}
    return files


def _list_directory(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        _raise_unreadable(error)


def read_file(name: str | os.PathLike[str]) -> bytes:
    """The content of the file ``name``, or of standard input. Raises UsageError."""
    if name == STDIN:
        return _read_standard_input()
    try:
        return read_within(name)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None


def shown_name(name: str) -> str:
    """The file ``name`` as messages have it."""
    return "standard input" if name == STDIN else name


def _list_files_below(directory: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, files in os.walk(directory, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in files if name.endswith(suffixes))


def _raise_unreadable(error: OSError) -> Never:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _read_standard_input() -> bytes:
    if sys.stdin.isatty():
        sys.stderr.write("reading from the terminal; Ctrl-D ends the text\n")
        sys.stderr.flush()
        content = _read_terminal(sys.stdin.fileno())
    else:
        content = sys.stdin.buffer.read(LIMITS.file_bytes + 1)
    if len(content) > LIMITS.file_bytes:
        raise UsageError(f"standard input is larger than {shown_size(LIMITS.file_bytes)}, so it is not read")
    return content


def _read_terminal(terminal: int) -> bytes:
    """What a person types at ``terminal``, up to the end or to the limit of a file."""
    content = b""
    while len(content) <= LIMITS.file_bytes:
        # In steps: an interrupt just before a read that blocks would be noticed after the next line only.
        while not select.select([terminal], [], [], _STEP_SECONDS)[0]:
            pass
        if not (typed := os.read(terminal, 65_536)):
            break
        content += typed
    return content


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
        """The content of the file at ``path``. Raises UnreadableFileError, and MissingFileError where there is none."""
        if path in self.contents:
            return self.contents[path]
        try:
            with self._open_file(path) as descriptor:
                return _read_regular_file(descriptor)
        except FileNotFoundError as error:
            raise MissingFileError((error.strerror or "there is none").lower()) from None
        except OSError as error:
            raise UnreadableFileError((error.strerror or "it cannot be read").lower()) from None
        except ValueError:
            raise UnreadableFileError("its name is none") from None

    @contextmanager
    def _open_file(self, path: str) -> Iterator[int]:
        real_path = os.path.realpath(os.path.expanduser(path))
        below = os.path.relpath(real_path, self._root)
        if self._allow_outside:
            descriptor = os.open(real_path, _OPEN)
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


def _read_regular_file(descriptor: int) -> bytes:
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
