"""Lines and columns in a file, and the positions of the values of a document."""

from __future__ import annotations

# The parser's line breaks; they are counted one by one, since a file may consist of them.
_BREAKS = "\n\r\x85\u2028\u2029"


def position(text: str, index: int) -> tuple[int, int]:
    """Line and column, counted from 1, of the character at ``index``."""
    return count_breaks(text, 0, index) + 1, index - start_of_line(text, index) + 1


def count_breaks(text: str, begin: int, end: int) -> int:
    """How many lines end between the two indices."""
    return sum(text.count(each, begin, end) for each in _BREAKS) - text.count("\r\n", begin, end)


def start_of_line(text: str, index: int, after: int = 0) -> int:
    """The start of the line of the character at ``index``; 0 if no line ends after ``after``."""
    return 1 + max(text.rfind(each, after, index) for each in _BREAKS)


Pointer = tuple[str | int, ...]
Position = tuple[int, int]


class Positions:
    """Lines and columns, counted from 1, of the values of one document and of the keys that lead to them.

    Also the text of numbers, booleans and nulls, since the value loses it: 1.10 becomes 1.1.
    """

    def __init__(self) -> None:
        self._values: dict[Pointer, Position] = {}
        self._keys: dict[Pointer, Position] = {}
        self._written: dict[Pointer, str] = {}

    def value(self, pointer: Pointer) -> Position:
        """The start of the value at ``pointer``, or of its nearest ancestor (an alias has no parts)."""
        while pointer and pointer not in self._values:
            pointer = pointer[:-1]
        return self._values.get(pointer, (1, 1))

    def key(self, pointer: Pointer) -> Position:
        """Where the mapping key that leads to ``pointer`` begins; for an item of a list, the item.

        Without such a value, the key or item of the nearest ancestor.
        """
        while pointer and pointer not in self._values:
            pointer = pointer[:-1]
        return self._keys.get(pointer) or self.value(pointer)

    def written(self, pointer: Pointer) -> str | None:
        """The written text of the number, boolean or null at ``pointer``; None if there is none."""
        return self._written.get(pointer)

    def add(self, pointer: Pointer, value: Position, key: Position | None, written: str | None = None) -> None:
        """Add the value at ``pointer``; the first of two with one pointer wins."""
        if written is not None and pointer not in self._values:
            self._written[pointer] = written
        self._values.setdefault(pointer, value)
        if key:
            self._keys.setdefault(pointer, key)
