"""Lines and columns, as people and the parser count them."""

from __future__ import annotations

# What ends a line for the parser; counted one by one, since a file may consist of them.
_BREAKS = "\n\r\x85\u2028\u2029"


def position(text: str, index: int) -> tuple[int, int]:
    """Line and column, counted from 1, of the character at ``index``."""
    before = sum(text.count(each, 0, index) for each in _BREAKS) - text.count("\r\n", 0, index)
    return before + 1, index - start_of_line(text, index) + 1


def start_of_line(text: str, index: int) -> int:
    """Where the line of the character at ``index`` begins."""
    return 1 + max(text.rfind(each, 0, index) for each in _BREAKS)
