"""Reads the files, directories and standard input that a command names."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Never

from reconciler.documents.limits import LIMITS, read_within, shown_size
from reconciler.errors import UsageError

STDIN = "-"
"""The name of standard input."""
_SUFFIXES = (".yaml", ".yml", ".json")
_STEP_SECONDS = 0.5
_MOST_ADVICE = 100
"""The most files of a directory that are looked at for what they are."""

Advice = Callable[[str, bytes], str]
"""Path, content → a sentence for a file that the command does not take, "" for one that it does."""


def read_files(names: Sequence[str], others: tuple[str, ...] = (), advice: Advice | None = None) -> dict[str, bytes]:
    """Path → content of the files in ``names``: files, directories with all below them, ``-`` for standard input.

    Of a directory, only YAML and JSON, and files whose names end in one of ``others``. Raises UsageError where one
    cannot be read or a directory holds none, with the first ``advice`` for what is there instead.
    """
    found: dict[str, bytes] = {}
    suffixes = (*_SUFFIXES, *others)
    for name in names:
        if name == STDIN:
            found["stdin"] = read_file(name)
            continue
        paths = sorted(_below(name, suffixes)) if os.path.isdir(name) else [name]
        if not paths:
            hint = advice_below(name, advice) if advice else ""
            raise UsageError(f"{name} has nothing to read: no file below it ends in {', '.join(suffixes)}{hint}")
        found |= {path: read_file(path) for path in paths}
    return found


def advice_below(directory: str, advice: Advice) -> str:
    """The first ``advice`` for a file below ``directory``, behind a semicolon; "" without one. Raises UsageError."""
    for path in sorted(_below(directory, ("",)))[:_MOST_ADVICE]:
        if os.path.isfile(path) and (words := advice(path, read_file(path))):
            return f"; {words}"
    return ""


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


def _below(directory: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, files in os.walk(directory, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in files if name.endswith(suffixes))


def _raise_unreadable(error: OSError) -> Never:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _read_standard_input() -> bytes:
    if sys.stdin.isatty():
        sys.stderr.write("reading from the terminal; Ctrl-D ends the text\n")
        sys.stderr.flush()
        content = _typed(sys.stdin.fileno())
    else:
        content = sys.stdin.buffer.read(LIMITS.file_bytes + 1)
    if len(content) > LIMITS.file_bytes:
        raise UsageError(f"standard input is larger than {shown_size(LIMITS.file_bytes)}, so it is not read")
    return content


def _typed(terminal: int) -> bytes:
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
