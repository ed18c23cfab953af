"""Lines and columns, as people and the parser count them."""

from __future__ import annotations

# What ends a line for the parser; counted one by one, since a file may consist of them.
_BREAKS = "\n\r\x85\u2028\u2029"


def position(text: str, index: int) -> tuple[int, int]:
    """Line and column, counted from 1, of the character at ``index``."""
    return count_breaks(text, 0, index) + 1, index - start_of_line(text, index) + 1


def count_breaks(text: str, begin: int, end: int) -> int:
    """How many lines end between the two indices."""
    return sum(text.count(each, begin, end) for each in _BREAKS) - text.count("\r\n", begin, end)


def start_of_line(text: str, index: int, after: int = 0) -> int:
    """Where the line of the character at ``index`` begins; at the start of the text where none ends since ``after``."""
    return 1 + max(text.rfind(each, after, index) for each in _BREAKS)
