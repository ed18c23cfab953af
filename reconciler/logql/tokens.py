"""The words of a query: names, marks and quoted texts, with spaces and comments between them."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.errors import ParseError

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_NUMBERED = {"x": 2, "u": 4, "U": 8}
"""Letter of an escape → how many hexadecimal digits follow."""


class QueryError(ParseError):
    """The text is not a query; the message begins with ``column`` (from 1), where the fault is."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"column {at + 1}: {message}")
        self.column = at + 1


class Quoted(NamedTuple):
    """A quoted value and its position in the query."""

    value: str
    at: int
    plain: bool
    """Whether the value has no escapes, so that its characters are those of the query."""


class QueryTokens:
    """Reads a query from left to right. Every method raises QueryError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def skip(self) -> None:
        """Go on to the next word, behind spaces and comments."""
        self.at = self._find_end(_SPACE)

    def is_at_end(self) -> bool:
        """Whether nothing follows but spaces and comments."""
        self.skip()
        return self.at >= len(self.text)

    def peek(self, pattern: re.Pattern[str]) -> str:
        """What ``pattern`` matches next, "" for nothing; the position stays."""
        self.skip()
        return self.text[self.at : self._find_end(pattern)]

    def take(self, pattern: re.Pattern[str], otherwise: str) -> str:
        """What ``pattern`` matches here; ``otherwise`` is the error if that is nothing."""
        begin, self.at = self.at, self._find_end(pattern)
        if self.at == begin:
            raise QueryError(otherwise, begin)
        return self.text[begin : self.at]

    def take_if_next(self, mark: str) -> bool:
        """Whether ``mark`` comes next; then it is read."""
        self.skip()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str, otherwise: str) -> None:
        """Read ``mark``; ``otherwise`` is the error if it is not there."""
        if not self.take_if_next(mark):
            raise QueryError(otherwise, self.at)

    def read_quoted(self) -> Quoted:
        """Read a text in quotes."""
        self.skip()
        begin = self.at
        if self.text.startswith("`", begin):
            end = self.text.find("`", begin + 1)
            if end < 0:
                raise QueryError("this ` has no end", begin)
            self.at = end + 1
            return Quoted(self.text[begin + 1 : end], begin, True)
        self.expect('"', 'a text in quotes, "…" or `…`, is missing here')
        parts: list[str] = []
        while not self.text.startswith('"', self.at):
            parts.append(self._character(begin))
        self.at += 1
        return Quoted("".join(parts), begin, self.at - begin - 2 == len(parts))

    def _character(self, begin: int) -> str:
        """The next character inside the quotes that open at ``begin``, unescaped."""
        at = self.at
        if at >= len(self.text) or self.text[at] == "\n":
            raise QueryError('this " has no end', begin)
        if self.text[at] != "\\":
            self.at += 1
            return self.text[at]
        letter = self.text[at + 1 : at + 2]
        if letter in _NUMBERED:
            return self._read_character(at, _NUMBERED[letter])
        if letter not in _ESCAPES:
            raise QueryError(r"there is no such escape; write \\ for a backslash, or use `…`", at)
        self.at += 2
        return _ESCAPES[letter]

    def _read_character(self, at: int, digits: int) -> str:
        text = self.text[at + 2 : at + 2 + digits]
        if re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", text) is None:
            raise QueryError(f"here {digits} hexadecimal digits have to follow", at)
        number = int(text, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000 or (digits == 2 and number > 0x7F):
            raise QueryError("this is the number of no character", at)
        self.at += 2 + digits
        return chr(number)

    def _find_end(self, pattern: re.Pattern[str]) -> int:
        """The end of ``pattern`` at this position; this position where it does not match."""
        match = pattern.match(self.text, self.at)
        return self.at if match is None else match.end()
