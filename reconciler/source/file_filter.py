"""Selects manifest files: by suffix, by the operator's globs and by the repository's ``.reconcilerignore``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

import msgspec

from reconciler.errors import SourceError
from reconciler.model.revision import SUFFIXES

IGNORE_FILE = ".reconcilerignore"
REPOSITORY_FILE = ".reconciler.yaml"
"""What the repository says of its manifests, at their root."""
MOST_IGNORE_BYTES = 64 * 1024
MOST_PATTERNS = 256
TOO_LARGE = (
    f"{IGNORE_FILE} is too large: at most {MOST_PATTERNS} patterns and {MOST_IGNORE_BYTES // 1024} KiB; "
    "name directories instead of files"
)


class Pattern(msgspec.Struct, frozen=True):
    """One glob, split into segments; ``None`` stands for ``**``."""

    segments: tuple[re.Pattern[str] | None, ...]
    negated: bool = False
    directory: bool = False

    def covers(self, names: list[str]) -> bool:
        """Whether the path with these names, or a directory above it, matches.

        Advances all possible matches at once, so that no pattern in a repository can make this slow.
        """
        end = len(self.segments)
        reached = self._through({0})
        for name in names:
            if end in reached:
                return True
            reached = self._through({step for at in reached for step in self._after(at, name)})
        return end in reached and not self.directory

    def _through(self, reached: set[int]) -> set[int]:
        return reached | {at + 1 for at in reached if at < len(self.segments) and self.segments[at] is None}

    def _after(self, at: int, name: str) -> tuple[int, ...]:
        segment = self.segments[at]
        if segment is None:
            return (at,)
        return (at + 1,) if segment.match(name) else ()


class FileFilter:
    """Decides for each path (relative to the source's path, ``/`` between names) whether it is read.

    A file is read if it has one of the ``SUFFIXES``, is neither hidden (``.gitlab-ci.yml``) nor in a hidden directory,
    matches an ``include`` (no ``include``: all match), matches no ``exclude``, and is not ignored by
    ``.reconcilerignore``. Patterns have the syntax of ``.gitignore``: one without an inner slash matches at any depth,
    one with a slash from the root; ``*``, ``?`` and ``[a-z]`` match within a name, ``**`` spans directories. A trailing
    slash matches only directories, and a matching directory covers everything below it. In the ignore file ``#`` begins
    a comment and ``!`` negates; the last matching line decides, even inside an ignored directory (which Git would not
    enter).
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = (), ignored: bytes = b"") -> None:
        self._include = tuple(_parse_pattern(text) for text in include)
        self._exclude = tuple(_parse_pattern(text) for text in exclude)
        self._ignored = _ignore_patterns(ignored)

    def matches(self, path: str) -> bool:
        """Whether the file at ``path`` is read as a manifest."""
        if not path.endswith(SUFFIXES) or path.startswith(".") or "/." in path:
            return False
        names = path.split("/")
        if self._include and not any(pattern.covers(names) for pattern in self._include):
            return False
        if any(pattern.covers(names) for pattern in self._exclude):
            return False
        return next((pattern.negated for pattern in self._ignored if pattern.covers(names)), True)


def _ignore_patterns(content: bytes) -> tuple[Pattern, ...]:
    """The patterns of an ignore file in order of precedence. Raises SourceError if it is too large."""
    if len(content) > MOST_IGNORE_BYTES:
        raise SourceError(TOO_LARGE)
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    if len(patterns) > MOST_PATTERNS:
        raise SourceError(TOO_LARGE)
    return tuple(_parse_pattern(line.removeprefix("!"), negated=line.startswith("!")) for line in reversed(patterns))


def _parse_pattern(text: str, *, negated: bool = False) -> Pattern:
    """``text`` as a pattern. ``\\#`` and ``\\!`` stand for the signs themselves."""
    plain = text.removeprefix("\\") if text.startswith(("\\#", "\\!")) else text
    names = [name for name in plain.split("/") if name not in ("", ".")]
    if "/" not in plain.rstrip("/"):
        names.insert(0, "**")
    segments = [None if name == "**" else re.compile(fnmatch.translate(_escape_open_brackets(name))) for name in names]
    return Pattern(_without_repeats(segments), negated, plain.endswith("/"))


def _escape_open_brackets(name: str) -> str:
    """``name`` with every bracket that no other one closes as a class of its own.

    ``fnmatch`` looks for the end of each to the end of the name.
    """
    end = name.rfind("]") + 1
    return name[:end] + name[end:].replace("[", "[[]")


def _without_repeats(segments: list[re.Pattern[str] | None]) -> tuple[re.Pattern[str] | None, ...]:
    """Merge adjacent ``**`` into one."""
    merged = [segment for at, segment in enumerate(segments) if segment or at == 0 or segments[at - 1]]
    return tuple(merged)
