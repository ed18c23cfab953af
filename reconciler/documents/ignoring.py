"""Comments that silence a warning: ``# reconciler: ignore RULE reason``, on its line or above it."""

from __future__ import annotations

import re

_MARK = b"reconciler: ignore"
_COMMENT = re.compile(r"(?:^|\s)#\s*reconciler:\s*ignore\s+(?P<rule>[-a-z0-9]+)(?P<reason>\s+\S.*)?$")


class Ignored:
    """What the comments of one file silence."""

    def __init__(self, raw: bytes) -> None:
        self._lines = raw.decode("utf-8", "replace").splitlines() if _MARK in raw else []

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
        return found is not None and found["rule"] == rule and bool(found["reason"])
