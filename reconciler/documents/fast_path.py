"""A shorter way for files of nothing but lines ``key: value`` and ``- item``, as most manifests are.

A value may be a mapping in braces where that is as plain: ``{engine: host}``, as settings have them.

Such a file is read line by line, a line that was met before without a closer look: a third of what the parser and the
composer take (35 µs in place of 113 for 1.6 KB, so that a first load costs a quarter less). Whatever is not plainly one
of these forms, be it right or wrong, is left to them: nothing is told here, neither a fault nor a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from reconciler.documents.limits import Limits
from reconciler.documents.scalars import NUMERIC, WORDS, Problem, plain

TEXT_FIELDS = frozenset({"tags"})
"""Top-level mappings in which numbers and booleans stay as written."""

DEEPEST = 63
"""Containers that can be open at once: a mapping and a list for each column in which one may begin, and one in braces.
"""

NODES = 2
"""Nodes that a byte can stand for at most: ``a:`` is a mapping, a key and its null."""

_SECRET = re.compile(rb"kind: +[\"']?secret").search
"""In a file with such a line there may be values that are not to be kept, as lines are."""

_IN_FIELD = 2
"""How many containers are open where one begins that is the value of a top-level field, with that of the root."""

_LINE = re.compile(
    r"""
      (?P<indent> \ {0,26} )
      (?P<dash> -\ {1,3} )?
      (?: (?P<key> [A-Za-z_][\w./-]{0,99} ) : (?!\S) \ * )?
      (?: "(?P<double> [^"\\]* )"
        | '(?P<single> [^']* )'
        | (?P<braces> \{ [^{}\ ]* (?: \ [^{}\ ]+ )* \} )
        | (?P<plain> (?: [\w./$(~] | -(?=\w) ) (?: [^\ :]++ | :(?=\S) | \ +(?=[^\ \#]) )*+ )
      )?
      (?: \ + (?: \#.* )? )?
    """,
    re.VERBOSE | re.ASCII,
).fullmatch

_ENTRY = re.compile(r"([A-Za-z_][\w./-]{0,99}): ([\w./~](?:[\w./~-]*[\w./~])?)", re.ASCII).fullmatch
"""What braces hold, between a comma and the next."""

_OPEN: Any = object()
"""The value of a key that has none on its line."""

Line = tuple[int, int, bool, str, Any, Any]
"""Column of the line, -1 where it says nothing; column of what follows its dash; whether it has one; key, or ""; value;
and the value where numbers and booleans stay as written."""

_RESOLVED: Any = object()
"""The value as written of a mapping in braces, whose members are not kept so."""

_NOTHING: Line = (-1, 0, False, "", None, None)


class NotSimple(Exception):
    """The file is to be read by the parser."""


def parse(raw: bytes, limits: Limits, text_fields: frozenset[str]) -> list[tuple[int, Any]] | None:
    """The line and value of each document that is not empty; None where ``raw`` is not all of plain lines.

    Values are those that the composer makes of the same file, which then has no fault.
    """
    bound = min(limits.nodes // NODES, limits.document_bytes)
    if not text_fields <= TEXT_FIELDS:
        return None
    if len(raw) > bound or limits.depth < DEEPEST or not raw.isascii() or _SECRET(raw):
        return None
    found = []
    number = 0
    text = f"\n{raw.decode()}"
    parts = text.split("\n---\n")
    # Lines that were met before are one and the same value; a mapping in braces is made anew, so that none is shared.
    look = _line if "{" not in text else _line.__wrapped__
    if len(parts) > limits.documents:
        return None
    try:
        for part in parts:
            lines = part.split("\n")
            value = _composed(map(look, lines), text_fields)
            if value is not _OPEN:
                found.append((number + _first(lines), value))
            number += len(lines) + 1
    except NotSimple:
        return None
    return found


def _composed(lines: Iterable[Line], text_fields: frozenset[str]) -> Any:
    # A first load spends its time here, so that what the stack has last is in names of its own.
    holder: dict[str, Any] = {"": _OPEN}
    filled: Any = holder
    top, in_list = -2, False
    stack: list[tuple[int, Any]] = [(top, filled)]
    opened: str | None = ""  # the key of the innermost container whose value has yet to come
    as_written: Any = None
    for at, inner, is_item, key, value, written in lines:
        if at != top or is_item is not in_list:
            if at < 0:
                continue
            if opened is not None and (at > top or (at == top and is_item)):
                child: Any = [] if is_item else {}
                filled[opened] = child
                as_written = child if len(stack) == _IN_FIELD and opened in text_fields else as_written
                stack.append((at, child))
                filled = child
            else:
                filled = _outer(stack, at, is_item)
            top, in_list = at, is_item
        if is_item and key:
            item: dict[str, Any] = {}
            filled.append(item)
            filled, top, in_list = item, inner, False
            stack.append((top, filled))
        elif filled is as_written:
            if written is _RESOLVED:
                raise NotSimple
            value = written
        if is_item and not key:
            filled.append(value)
            opened = None
            continue
        if key in filled:
            raise NotSimple
        opened = key if value is _OPEN else None
        filled[key] = None if value is _OPEN else value
    return holder[""]


def _outer(stack: list[tuple[int, Any]], at: int, is_item: bool) -> Any:
    """The container that a line at the column ``at`` goes on with, the last of ``stack`` from now on."""
    while stack[-1][0] > at:
        stack.pop()
    if not is_item and type(stack[-1][1]) is list:
        stack.pop()  # a list may begin in the column of the key that it belongs to
    column, filled = stack[-1]
    if column != at or (type(filled) is list) is not is_item:
        raise NotSimple
    return filled


@lru_cache(maxsize=8192)
def _line(text: str) -> Line:
    """What one line says, its characters all from ASCII. Raises NotPlain."""
    said = text.lstrip(" ")
    if text.isprintable() and (not said or said[0] == "#"):
        return _NOTHING
    found = _LINE(text) if text.isprintable() else None
    if found is None:
        raise NotSimple
    indent, dash, key, double, single, braces, bare = found.groups()
    if (not key and (not dash or double is single is braces is bare is None)) or key in WORDS:
        raise NotSimple
    value = written = _OPEN
    if braces is not None:
        value, written = _in_braces(braces, key), _RESOLVED
    elif bare is not None:
        value = _resolved(bare)
        written = None if value is None else bare
    elif double is not None or single is not None:
        value = written = single if double is None else double
    at = len(indent)
    return at, at + len(dash or ""), dash is not None, key or "", value, written


def _resolved(text: str) -> Any:
    """The value of a text without quotes. Raises NotPlain."""
    value = plain(text) if text in WORDS or text[0] in NUMERIC else text
    if type(value) is Problem:
        raise NotSimple
    return value


def _in_braces(text: str, key: str | None) -> dict[str, Any]:
    """The mapping ``text``, the value of ``key``. Raises NotPlain."""
    found: dict[str, Any] = {}
    for entry in text[1:-1].split(", ") if text != "{}" else ():
        parts = _ENTRY(entry)
        value = _resolved(parts[2]) if parts is not None else None
        if parts is None or parts[1] in WORDS or parts[1] in found or key in TEXT_FIELDS:
            raise NotSimple
        found[parts[1]] = value
    return found


def _first(lines: Sequence[str]) -> int:
    """The first of ``lines`` that says something."""
    return next(index for index, text in enumerate(lines) if _line(text) is not _NOTHING)
