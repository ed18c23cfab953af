"""Text on a terminal: how wide that is, what it can show, and long lines folded to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TextIO
from unicodedata import category, east_asian_width

NARROWEST = 24
"""The least columns that a cell is folded into; a narrower one continues below its line."""
_INDENT = 4
"""How far a line continues to the right of its beginning where its last cell is too narrow."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PIECES = re.compile(r"( +)|((?:\x1b\[[0-9;]*m|[^ \x1b])+)")
_EXCERPT = re.compile(r"(?:\x1b\[[0-9;]*m)* *\d* \|")
"""How a line of a manifest begins, and the carets below it: both stay as they are."""
_DUMB = "dumb"


def can_redraw(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that obeys more than line breaks."""
    return stream.isatty() and os.environ.get("TERM") != _DUMB


def is_colour_terminal(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that shows colours, and its user has not set NO_COLOR."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def count_columns(stream: TextIO) -> int:
    """The columns of a terminal, by COLUMNS where that is set; 0 for what is none, whose lines may have any length."""
    if not stream.isatty():
        return 0
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def fold_text(text: str, columns: int) -> str:
    """``text`` with its long lines folded between words, so that they have at most ``columns``; 0: as it is.

    A line continues below its last cell where that has room, else a little to the right of its beginning. A word that
    is longer than a line stays whole.
    """
    if not columns:
        return text
    return "".join(_fold_line(line, columns) for line in text.splitlines(keepends=True))


def _fold_line(line: str, columns: int) -> str:
    bare = line.rstrip("\n")
    if len(bare) <= columns and bare.isascii():
        return line
    if measure_text(bare) <= columns or _EXCERPT.match(bare):
        return line
    return "\n".join(_list_folded(bare, columns)) + line[len(bare) :]


def _list_folded(line: str, columns: int) -> Iterator[str]:
    """The parts of ``line``, each of which fits or is one word."""
    pieces = [(len(space), word) for space, word in _PIECES.findall(line)]
    indent = _find_indent(line, columns)
    shown, at, gap = "", 0, 0
    for space, word in pieces:
        if space:
            gap += space
            continue
        width = measure_text(word)
        if at > indent and at + gap + width > columns and width:
            yield shown
            shown, at, gap = " " * indent, indent, 0
        shown += " " * gap + word
        at += gap + width
        gap = 0
    yield shown


def _find_indent(line: str, columns: int) -> int:
    """The columns before the last cell of ``line`` that can hold each of its words, else a few more than its own."""
    bare = _COLOURS.sub("", line)
    own = len(bare) - len(bare.lstrip(" "))
    starts = [found.end() for found in re.finditer("(?<! )  +(?! )", bare[: columns - NARROWEST + 1]) if found.start()]
    for start in reversed(starts):
        if start + max(map(measure_text, bare[start:].split()), default=0) <= columns:
            return start
    return own + _INDENT


def measure_text(text: str) -> int:
    """The columns of ``text``, whose colours take none."""
    plain = _COLOURS.sub("", text) if "\x1b" in text else text
    return len(plain) if plain.isascii() else sum(map(_measure_character, plain))


def _measure_character(character: str) -> int:
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
