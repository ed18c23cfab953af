"""Lines and columns in a file, and the positions of the values of a document."""

from __future__ import annotations

import msgspec

# The parser's line breaks; they are counted one by one, since a file may consist of them.
_BREAKS = "\n\r\x85\u2028\u2029"


def find_position(text: str, index: int) -> tuple[int, int]:
    """Line and column, counted from 1, of the character at ``index``."""
    return count_breaks(text, 0, index) + 1, index - start_of_line(text, index) + 1


def count_breaks(text: str, begin: int, end: int) -> int:
    """How many lines end between the two indices."""
    return sum(text.count(line_break, begin, end) for line_break in _BREAKS) - text.count("\r\n", begin, end)


def start_of_line(text: str, index: int, after: int = 0) -> int:
    """The start of the line of the character at ``index``; 0 if no line ends after ``after``."""
    return 1 + max(text.rfind(line_break, after, index) for line_break in _BREAKS)


Pointer = tuple[str | int, ...]
Position = tuple[int, int]


class Place(msgspec.Struct, gc=False):
    """The position of a value and of the key that leads to it, and the places of the values in it.

    ``value`` is None for a key that is a list or mapping, until its value follows. ``written`` is the text of a number,
    a boolean or null, since the value loses it: 1.10 becomes 1.1.
    """

    value: Position | None
    key: Position | None = None
    written: str | None = None
    parts: Parts | None = None

    def open(self) -> Parts:
        """The places of the values in this one, to add to."""
        if self.parts is None:
            self.parts = {}
        return self.parts


Parts = dict[str | int, Place]


def add_place(
    parts: Parts, step: str | int, value: Position | None, key: Position | None, written: str | None
) -> Place:
    """The place of the value at ``step``, with its positions and text; the first of two values wins."""
    node = parts.get(step)
    if node is None or node.value is None:
        node = parts[step] = Place(value, key, written, node.parts if node is not None else None)
    return node


class Positions:
    """Lines and columns, counted from 1, of the values of one document and of the keys that lead to them."""

    def __init__(self) -> None:
        self.root = Place((1, 1))

    def value(self, pointer: Pointer) -> Position:
        """The start of the value at ``pointer``, or of its nearest ancestor (an alias has no parts)."""
        return self._nearest(pointer).value or (1, 1)

    def key(self, pointer: Pointer) -> Position:
        """Where the mapping key that leads to ``pointer`` begins; for an item of a list, the item.

        Without such a value, the key or item of the nearest ancestor.
        """
        node = self._nearest(pointer)
        return node.key or node.value or (1, 1)

    def written_text(self, pointer: Pointer) -> str | None:
        """The written text of the number, boolean or null at ``pointer``; None if there is none."""
        node: Place | None = self.root
        for step in pointer:
            node = node.parts.get(step) if node and node.parts else None
        return node.written if node else None

    def _nearest(self, pointer: Pointer) -> Place:
        """The last recorded place on the way to ``pointer``."""
        node = nearest = self.root
        for step in pointer:
            if node.parts is not None and isinstance(step, int) and step not in node.parts:
                step = str(step)  # a pointer that was a text does not tell an index from a key of digits
            if node.parts is None or step not in node.parts:
                break
            node = node.parts[step]
            nearest = node if node.value else nearest
        return nearest
