"""Comments that silence a warning: ``# reconciler: ignore RULE reason``, on its line or above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.documents.redaction import lines_of

MARK = b"reconciler:"
"""Without these bytes a file has no such comment, and nothing looks for one."""

_COMMENT = re.compile(r"(?:^|\s)(#\s*reconciler:\s*ignore\b\s*)([-a-zA-Z0-9_]*)(?:\s+([^\s#].*))?")


class Comment(NamedTuple):
    """What a comment says, and where it begins; ``rule`` and ``reason`` are empty where it does not say them."""

    line: int
    column: int
    rule: str
    reason: str


def comments(raw: bytes) -> Iterator[Comment]:
    """All such comments of a file; a text that spells one passes for it."""
    for number, line in enumerate(lines_of(raw), 1):
        found = _COMMENT.search(line)
        if found is not None:
            yield Comment(number, found.start(1) + 1, found[2], found[3] or "")


class IgnoreComments:
    """What the comments of one file silence."""

    def __init__(self, raw: bytes) -> None:
        self._lines = lines_of(raw) if MARK in raw else []

    def __contains__(self, place: tuple[int, str]) -> bool:
        """Whether a comment speaks of the line (from 1) and rule ``place``: on it, or in the comment lines above."""
        line, rule = place
        if not 0 < line <= len(self._lines):
            return False
        if self._says(line, rule):
            return True
        above = line - 1
        while above and self._lines[above - 1].lstrip().startswith("#"):
            if self._says(above, rule):
                return True
            above -= 1
        return False

    def _says(self, line: int, rule: str) -> bool:
        found = _COMMENT.search(self._lines[line - 1])
        return found is not None and found[2] == rule and bool(found[3])
