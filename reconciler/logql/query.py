"""Log queries: the part of LogQL that selects streams by label and lines by content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from reconciler.errors import ParseError
from reconciler.logql.regex import ExpressionError, compile_expression
from reconciler.model.suggest import closest

LABELS = ("gvc", "workload", "location", "replica", "container")
"""The labels of a stream."""

LONGEST = 10_000
"""Characters of a query."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MATCHING = re.compile(r"=~|!~|!=|=")
_FILTERING = re.compile(r"\|=|\|~|!=|!~")
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip
_NUMBERED = {"x": 2, "u": 4, "U": 8}
"""Letter of an escape → how many hexadecimal digits follow."""


class QueryError(ParseError):
    """The text is not a query; the message begins with ``column`` (from 1), where the fault is."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"column {at + 1}: {message}")
        self.column = at + 1


class Matcher(msgspec.Struct, frozen=True):
    """One condition on a label: ``=`` or ``!=`` with a text, ``=~`` or ``!~`` with an expression for all of it."""

    label: str
    op: str
    value: str
    pattern: re.Pattern[str] | None = None

    def matches(self, value: str) -> bool:
        """Whether a label with ``value`` matches."""
        same = value == self.value if self.pattern is None else self.pattern.fullmatch(value) is not None
        return same is self.op.startswith("=")


class Filter(msgspec.Struct, frozen=True):
    """One condition on lines: ``|=`` or ``!=`` with a text, ``|~`` or ``!~`` with an expression for any part."""

    op: str
    value: str
    pattern: re.Pattern[str] | None = None

    def filter_lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The ``lines`` that match."""
        wanted = self.op.startswith("|")
        if self.pattern is None:
            text = as_bytes(self.value)
            return [line for line in lines if (text in line) is wanted]
        search = self.pattern.search
        return [line for line in lines if (search(as_text(line)) is not None) is wanted]


class LogQuery(msgspec.Struct, frozen=True):
    """Conditions on streams and on their lines; all must match."""

    matchers: tuple[Matcher, ...]
    filters: tuple[Filter, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a stream with ``labels`` matches; a missing label counts as empty."""
        return all(matcher.matches(labels.get(matcher.label, "")) for matcher in self.matchers)

    def may_match(self, text: bytes) -> bool:
        """Whether a line of ``text`` can match. Cheap, since it splits no lines; False is certain."""
        return all(as_bytes(each.value) in text for each in self.filters if each.op == "|=")

    def filter_lines(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The ``lines`` that pass all filters."""
        for each in self.filters:
            lines = each.filter_lines(lines)
        return lines


def parse(text: str) -> LogQuery:
    """Parse ``{gvc="shop", workload=~"web|api"} |= "error"``. Raises QueryError and nothing else."""
    try:
        as_bytes(text)
    except UnicodeEncodeError as error:
        raise QueryError("this is no character", error.start) from None
    if len(text) > LONGEST:
        raise QueryError(f"a query has at most {LONGEST:,} characters", LONGEST)
    return _Parser(text).query()


def as_bytes(text: str) -> bytes:
    """``text`` as the bytes of a log; bytes of a command line that are not UTF-8 come back unchanged."""
    return text.encode("utf-8", "surrogateescape")


def as_text(line: bytes) -> str:
    """A line of a log as text for expressions: the inverse of ``as_bytes``."""
    return line.decode("utf-8", "surrogateescape")


class _Quoted(NamedTuple):
    """A quoted value and its position in the query."""

    value: str
    at: int
    plain: bool
    """Whether the value has no escapes, so that its characters are those of the query."""


class _Parser:
    """Parses one query from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def query(self) -> LogQuery:
        self._expect("{", 'a query begins with streams in braces, such as {gvc="shop"}')
        matchers = self._matchers()
        filters: list[Filter] = []
        self._skip()
        while self._at < len(self._text):
            filters.append(self._filter())
            self._skip()
        return LogQuery(matchers, tuple(filters))

    def _matchers(self) -> tuple[Matcher, ...]:
        begin = self._at - 1
        found: list[Matcher] = []
        self._skip()
        if not self._text.startswith("}", self._at):
            found.append(self._matcher())
            while self._taken(","):
                found.append(self._matcher())
        self._expect("}", "`,` and another label, or `}`, is missing here")
        if all(each.matches("") for each in found):
            hint = 'such as gvc="shop" or workload=~".+"'
            raise QueryError(f"at least one label has to be asked for that is not empty, {hint}", begin)
        return tuple(found)

    def _matcher(self) -> Matcher:
        self._skip()
        name = self._match(_NAME, f"a label is missing here: {', '.join(LABELS)}")
        if name not in LABELS:
            close = closest(name, LABELS)
            advice = f"did you mean {close}?" if close else f"there are {', '.join(LABELS)}"
            raise QueryError(f"there is no label {name}; {advice}", self._at - len(name))
        self._skip()
        op = self._match(_MATCHING, "after a label comes one of = != =~ !~")
        return Matcher(name, op, *self._operand(op))

    def _filter(self) -> Filter:
        op = self._match(_FILTERING, 'lines are chosen by |= != |~ !~ and a text, such as |= "error"; nothing else')
        return Filter(op, *self._operand(op))

    def _operand(self, op: str) -> tuple[str, re.Pattern[str] | None]:
        self._skip()
        quoted = self._quoted()
        if "~" not in op:
            return quoted.value, None
        try:
            return quoted.value, compile_expression(quoted.value)
        except ExpressionError as error:
            raise QueryError(str(error), quoted.at + (1 + error.at if quoted.plain else 0)) from None

    def _quoted(self) -> _Quoted:
        begin = self._at
        if self._text.startswith("`", begin):
            end = self._text.find("`", begin + 1)
            if end < 0:
                raise QueryError("this ` has no end", begin)
            self._at = end + 1
            return _Quoted(self._text[begin + 1 : end], begin, True)
        self._expect('"', 'a text in quotes, "…" or `…`, is missing here')
        parts: list[str] = []
        while not self._text.startswith('"', self._at):
            parts.append(self._character(begin))
        self._at += 1
        return _Quoted("".join(parts), begin, self._at - begin - 2 == len(parts))

    def _character(self, begin: int) -> str:
        """The next character inside the quotes that open at ``begin``, unescaped."""
        at = self._at
        if at >= len(self._text) or self._text[at] == "\n":
            raise QueryError('this " has no end', begin)
        if self._text[at] != "\\":
            self._at += 1
            return self._text[at]
        letter = self._text[at + 1 : at + 2]
        if letter in _NUMBERED:
            return self._numbered(at, _NUMBERED[letter])
        if letter not in _ESCAPES:
            raise QueryError(r"there is no such escape; write \\ for a backslash, or use `…`", at)
        self._at += 2
        return _ESCAPES[letter]

    def _numbered(self, at: int, digits: int) -> str:
        text = self._text[at + 2 : at + 2 + digits]
        if re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", text) is None:
            raise QueryError(f"here {digits} hexadecimal digits have to follow", at)
        number = int(text, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000 or (digits == 2 and number > 0x7F):
            raise QueryError("this is the number of no character", at)
        self._at += 2 + digits
        return chr(number)

    def _skip(self) -> None:
        self._at = self._matched(_SPACE)

    def _matched(self, pattern: re.Pattern[str]) -> int:
        """The end of ``pattern`` at this position; this position where it does not match."""
        found = pattern.match(self._text, self._at)
        return self._at if found is None else found.end()

    def _match(self, pattern: re.Pattern[str], otherwise: str) -> str:
        begin, self._at = self._at, self._matched(pattern)
        if self._at == begin:
            raise QueryError(otherwise, begin)
        return self._text[begin : self._at]

    def _taken(self, mark: str) -> bool:
        self._skip()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _expect(self, mark: str, otherwise: str) -> None:
        if not self._taken(mark):
            raise QueryError(otherwise, self._at)
