"""Reads files of simple lines, as most manifests are, without the parser: less than half of the work.

A simple line is a key, a list item or both, with a value that ends on the same line, or with a block of text below it.
A line that occurred before, in any file, is not examined again. Every other file, valid or not, goes to the parser:
this module reports no fault and counts no limit. Its values are those that the parser and the composer give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from reconciler.documents.limits import Limits
from reconciler.documents.scalars import NUMERIC, WORDS, Problem, plain
from reconciler.documents.types import Document

TEXT_FIELDS = frozenset({"tags"})
"""Top-level mappings in which numbers and booleans stay as written."""

DEEPEST = 63
"""More containers than are ever open at once: a mapping or a list for each column up to 44, and one in brackets."""

_NODES_A_BYTE = 2
"""The most nodes that a byte stands for: ``a:`` is a mapping, a key and its null."""

_LONGEST, _LONGEST_FLOW = 300, 120
"""Characters of the longest simple line and of the longest brackets: the cached lines take at most 12 MiB."""

_SECRET = re.compile(rb"secret(?<![\w/.-]secret)(?![\w.-])").search

# The spaces after a key may be those before its comment, so they can be given back.
_LINE = re.compile(
    r"""
      (?P<indent> \ {0,40} )
      (?P<dash> -\ {1,3} )?
      (?: (?P<key> [A-Za-z_][A-Za-z0-9_./-]{0,99} ) : (?!\S) \ * )?
      (?: (?P<bare> (?: [\w./$(~] | -(?=\w) ) [^\ :]*+ (?: (?: :(?=\S) | \ +(?=[^\ \#]) ) [^\ :]*+ )* )
        | "(?P<double> [^"\\]* )"
        | '(?P<single> [^']* )'
        | (?P<flow> \[ [^\[\]{}]* \] | \{ [^\[\]{}]* \} )
      )?
      (?: \ + (?: \#.* )? )?
    """,
    re.VERBOSE,
).fullmatch

_BLOCK = re.compile(r"([^#]*[^ #]:| *-) +([|>])(-?)").fullmatch
"""A key or an item with literal or folded text, without or with the mark that drops the last line break."""

_FLOW_KEY = re.compile(r" *([A-Za-z_][\w./-]{0,99}): +", re.ASCII).match
_FLOW_VALUE = re.compile(
    r""" *(?:"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<bare>-{0,2}[\w./~$][\w./~$@%+=-]*)) *(?:,|$)""", re.ASCII
).match

_SCALAR, _OPEN, _FLOW = 0, 1, 2
"""What a line has as value: a scalar, nothing on this line, a list or mapping in brackets."""


class Line(NamedTuple):
    """What one line means: ``column`` is -1 without content, ``inner`` the column of what follows its dash.

    ``key`` is "" without one; ``written`` is the value where numbers and booleans stay as written.
    """

    column: int
    inner: int
    is_item: bool
    key: str
    form: int
    value: Any
    written: Any


_EMPTY = Line(-1, 0, False, "", _OPEN, None, None)


class _NotSimple(Exception):
    """The file is for the parser."""


def read_lines(raw: bytes, limits: Limits, text_fields: frozenset[str]) -> list[Document] | None:
    """The documents of ``raw``, a file of UTF-8 text; None if a line of it is not simple."""
    nodes = min(limits.nodes, limits.file_nodes)
    if len(raw) > min(nodes // _NODES_A_BYTE, limits.document_bytes) or limits.depth < DEEPEST:
        return None
    text = raw.decode()
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    parts = f"\n{text}".split("\n---\n")
    if len(parts) > limits.documents or not text_fields <= TEXT_FIELDS:
        return None
    examine = _line.__wrapped__ if _may_be_secret(raw) else _line
    documents: list[Document] = []
    number = 0
    try:
        for index, part in enumerate(parts, 1):
            lines = part.split("\n")
            if index < len(parts):
                lines.append("")  # the line break before the separator
            parsed = _with_blocks(lines, examine) if "|" in part or ">" in part else map(examine, lines)
            value = _compose(parsed, text_fields)
            if value is not None:
                documents.append(Document(value, len(documents), number + _first(lines)))
            number += len(lines)
    except _NotSimple:
        return None
    return documents


def _may_be_secret(raw: bytes) -> bool:
    """Whether a kind in ``raw`` may be ``secret``, in any spelling; lines of such a file are not cached."""
    return b"\\" in raw or _SECRET(raw.lower()) is not None


def _compose(lines: Iterable[Line], text_fields: frozenset[str]) -> Any:
    """The list or mapping that ``lines`` form; None if they have no content."""
    # A first load spends its time here, so the top of the stack has local names: `filled` is the innermost container,
    # `top` its column, `in_list` whether it is a list, and `opened` its last key while that has no value.
    root: dict[str, Any] = {"": None}
    filled: Any = root
    top, in_list = -2, False
    stack: list[tuple[int, Any]] = [(top, filled)]
    opened: str | None = ""
    as_written: Any = None
    for at, inner, is_item, key, form, value, written in lines:
        if at != top or is_item is not in_list:
            if at < 0:
                continue
            if opened is not None and (at > top or (at == top and is_item)):
                child: Any = [] if is_item else {}
                filled[opened] = child
                as_written = child if len(stack) == 2 and opened in text_fields else as_written
                stack.append((at, child))
                filled = child
            else:
                filled = _enclosing(stack, at, is_item)
            top, in_list = at, is_item
        if is_item:
            if not key:
                filled.append(value.copy() if form is _FLOW else value if filled is not as_written else written)
                opened = None
                continue
            item: dict[str, Any] = {}
            filled.append(item)
            filled, top, in_list = item, inner, False
            stack.append((top, filled))
        elif filled is as_written:
            value = written
        if key in filled:
            raise _NotSimple
        opened = key if form is _OPEN else None
        filled[key] = value.copy() if form is _FLOW else value
    return root[""]


def _enclosing(stack: list[tuple[int, Any]], at: int, is_item: bool) -> Any:
    """The open container that a line in the column ``at`` continues; those within it are removed from ``stack``."""
    while stack[-1][0] > at:
        stack.pop()
    if not is_item and type(stack[-1][1]) is list:
        stack.pop()  # a list may begin in the column of its key
    column, filled = stack[-1]
    if column != at or (type(filled) is list) is not is_item:
        raise _NotSimple
    return filled


@lru_cache(maxsize=4096)
def _line(text: str) -> Line:
    """What one line means. Raises _NotSimple."""
    content = text.lstrip(" ")
    if len(text) > _LONGEST or not text.isprintable():
        raise _NotSimple
    if not content or content[0] == "#":
        return _EMPTY
    found = _LINE(text)
    if found is None:
        raise _NotSimple
    indent, dash, key, bare, double, single, flow = found.groups()
    quoted = single if double is None else double
    if key in WORDS or not (key or (dash and (bare or flow or quoted is not None))):
        raise _NotSimple
    form, value, written = _SCALAR, quoted, quoted
    if bare is not None:
        value = _resolved(bare)
        written = None if value is None else bare
    elif flow is not None:
        form, value = _FLOW, _flow(flow, key)
        written = value
    elif quoted is None:
        form = _OPEN
    at = len(indent)
    return Line(at, at + len(dash or ""), dash is not None, key or "", form, value, written)


def _resolved(text: str) -> Any:
    """The value of a text without quotes. Raises _NotSimple."""
    value = plain(text) if text in WORDS or text[0] in NUMERIC else text
    if type(value) is Problem:
        raise _NotSimple
    return value


def _flow(text: str, key: str | None) -> Any:
    """The list or mapping of scalars in brackets, the value of ``key``. Raises _NotSimple."""
    is_list = text[0] == "["
    found: Any = [] if is_list else {}
    rest = text[1:-1].strip(" ")
    if (rest and key in TEXT_FIELDS) or len(text) > _LONGEST_FLOW or rest.endswith(","):
        raise _NotSimple
    at = 0
    while at < len(rest):
        name = None if is_list else _FLOW_KEY(rest, at)
        scalar = _FLOW_VALUE(rest, name.end() if name else at)
        if scalar is None or (name is None and not is_list):
            raise _NotSimple
        bare, at = scalar["bare"], scalar.end()
        value = _resolved(bare) if bare is not None else scalar[scalar.lastgroup or ""]
        if name is None:
            found.append(value)
        elif name[1] in WORDS or name[1] in found:
            raise _NotSimple
        else:
            found[name[1]] = value
    return found


def _with_blocks(lines: Sequence[str], examine: Callable[[str], Line]) -> Iterator[Line]:
    """What each line means, a block of text together with its key. Raises _NotSimple."""
    number = 0
    while number < len(lines):
        head = _BLOCK(lines[number]) if lines[number].endswith(("|", ">", "-")) else None
        line = _block_head(head[1], examine) if head else examine(lines[number])
        number += 1
        if head:
            if line.form is not _OPEN:
                raise _NotSimple
            end = _block_end(lines, number, line.inner)
            text = _block(lines[number:end], folded=head[2] == ">") + ("" if head[3] else "\n")
            line, number = line._replace(form=_SCALAR, value=text, written=text), end
        yield line


def _block_head(text: str, examine: Callable[[str], Line]) -> Line:
    """What the part before ``|`` or ``>`` means. Raises _NotSimple."""
    at = len(text) - 1
    return Line(at, at, True, "", _OPEN, None, None) if text.endswith("-") else examine(text)


def _block_end(lines: Sequence[str], number: int, column: int) -> int:
    """The number of the first line after the text of a key or item in ``column``. Raises _NotSimple."""
    margin = " " * (column + 1)
    while number < len(lines) and (not lines[number] or lines[number].startswith(margin)):
        number += 1
    # At the end of a file without a line break the text has none; a line of spaces may belong to the text.
    if lines[-1] if number == len(lines) else not lines[number].strip(" "):
        raise _NotSimple
    return number


def _block(lines: Sequence[str], *, folded: bool) -> str:
    """The text of the lines below ``|`` or ``>``, without its last line break. Raises _NotSimple."""
    first = next(filter(None, lines), "")
    indent = len(first) - len(first.lstrip(" "))
    for line in lines:
        if line and (line[:indent].strip(" ") or not line[indent:].strip(" ") or not line.isprintable()):
            raise _NotSimple
    text = "\n".join([line[indent:] for line in lines]).rstrip("\n")
    # Empty and indented lines are not folded.
    if not text or (folded and ("\n\n" in text or "\n " in text or text[0] == "\n")):
        raise _NotSimple
    return text.replace("\n", " ") if folded else text


def _first(lines: Sequence[str]) -> int:
    """The number of the first line with content."""
    return next(number for number, text in enumerate(lines) if text.strip(" ") and text.lstrip(" ")[0] != "#")
