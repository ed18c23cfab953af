"""Comments that silence a warning: ``# reconciler: ignore RULE reason``, on its line or above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.documents.positions import count_breaks, start_of_line

MARK = b"reconciler:"
"""The mark of these comments; a file without it is not searched."""

_TEXT = MARK.decode()

MOST_COMMENTS = 1_000
"""The maximum of comments in a file; further ones silence nothing."""

_MOST_MARKS = 10 * MOST_COMMENTS
"""The maximum of marks in a file that are checked for a comment."""

_BEFORE, _BEHIND = 100, 1_000
"""Characters before and after the mark that may belong to its comment."""

_COMMENT = r"(?:(?<![\s\S])|(?<=\s))(#\s*reconciler:\s*ignore\b\s*)([-a-zA-Z0-9_]*)(?:\s+([^\s#].*))?"
_END = "[\n\r\x85\u2028\u2029]|\\Z"
_COMMENT_LINES = "(?:[^\\S\n\r\x85\u2028\u2029]*+#[^\n\r\x85\u2028\u2029]*+(?:\r\n|[\n\r\x85\u2028\u2029]|\\Z))*+"
"""Lines that have only a comment."""


class Comment(NamedTuple):
    """A comment and its position; ``rule`` and ``reason`` are "" if it lacks them."""

    line: int
    column: int
    rule: str
    reason: str


class UnusedComment(NamedTuple):
    """The position of a comment that silences no warning of ``rule`` in its file."""

    line: int
    column: int
    rule: str


class IgnoreComments:
    """The first ``MOST_COMMENTS`` comments of one file, and the warnings that they silence.

    Such a comment inside a text counts too. ``overflow`` is the first line whose comments are not read; 0 if all are.
    """

    def __init__(self, raw: bytes) -> None:
        self.found: list[Comment] = []
        self.overflow = 0
        self._silenced: dict[tuple[int, str], int] = {}
        if MARK in raw:
            self._read(raw.decode("utf-8-sig", "replace"))

    def silencing(self, line: int, rule: str) -> int:
        """The line (from 1) of the comment on or right above ``line`` that silences ``rule`` there; 0 for none."""
        return self._silenced.get((line, rule), 0)

    def _read(self, text: str) -> None:
        block_end = below = 0
        for marks, (number, start, match) in enumerate(_list_marks(text)):
            if len(self.found) == MOST_COMMENTS or marks == _MOST_MARKS:
                self.overflow = number
                return
            if match is None or (self.found and self.found[-1].line == number):
                continue
            comment = Comment(number, match.start(1) - start + 1, match[2], match[3] or "")
            self.found.append(comment)
            if not comment.reason:
                continue
            if start >= block_end:
                block = re.compile(_COMMENT_LINES).match(text, start)
                block_end = block.end() if block is not None else start
                below = number + count_breaks(text, start, block_end)
            # A comment after a value silences only its own line.
            for line in {number, below if start < block_end else number}:
                self._silenced[line, comment.rule] = number


class _Mark(NamedTuple):
    """A mark: its line, the index at which that line begins, and the comment that it belongs to."""

    line: int
    start: int
    comment: re.Match[str] | None


def _list_marks(text: str) -> Iterator[_Mark]:
    # Compiled here, since few files have such a comment.
    comment, break_or_end = re.compile(_COMMENT), re.compile(_END)
    number, start, at, last = 1, 0, 0, 0
    while (at := text.find(_TEXT, at)) >= 0:
        # Line breaks are counted only between marks, so that a long line costs as little as many short ones.
        if breaks := count_breaks(text, last, at):
            number, start = number + breaks, start_of_line(text, at, last)
        end = break_or_end.search(text, at, at + _BEHIND)
        match = comment.search(text, max(start, at - _BEFORE), end.start() if end is not None else len(text))
        yield _Mark(number, start, match)
        last = at
        at += len(_TEXT)
