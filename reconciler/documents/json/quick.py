"""Reads ordinary files in JSON without events, in a fifth of the time.

It reports no fault, and counts limits roughly: where one may be exceeded, the file goes to the events. Its values are
those that the events and the composer give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any, NamedTuple, Never

from reconciler.documents.limits import Limits
from reconciler.documents.scalars import ScalarProblem, parse_plain_scalar
from reconciler.documents.types import Document

_ODD = re.compile(r"[^\t\n\r\x20-\x7e]|\\[ubf]|\r(?!\n)")
"""What needs a check that is not made here: characters that may be invisible, escapes of such, odd line breaks."""
_SPACE = re.compile(r"[ \t\n\r]*+")
_CONTAINERS = (dict, list)


class _Written(NamedTuple):
    """A value, and where it begins and ends in the text."""

    value: Any
    start: int
    end: int


class _NotOrdinary(ValueError):
    """The file is for the events."""


def read_quickly(raw: bytes, limits: Limits, text_fields: frozenset[str]) -> list[Document] | None:
    """The documents of ``raw``, a file in UTF-8; None if it is no JSON, or not ordinary."""
    text = raw.decode()
    if _ODD.search(text) or _most_nodes(text) > limits.file_nodes:
        return None
    documents: list[Document] = []
    line, last = 1, 0
    try:
        for value, start, end in _decode_values(text):
            _check_limits(value, text[start:end], limits, text_fields)
            line, last = line + text.count("\n", last, start), start
            documents.append(Document(value, len(documents), line))
    except (ValueError, RecursionError):
        return None
    return documents if len(documents) <= limits.documents else None


def _decode_values(text: str) -> Iterator[_Written]:
    """The value of ``text``, or each item of its list, with its begin and its end."""
    at = _after_space(text, 0)
    if text[at : at + 1] != "[":
        value, end = _decode(text, at)
        yield _Written(value, at, end)
    elif text[(end := _after_space(text, at + 1)) : end + 1] != "]":
        end = at
        while end == at or text[end] == ",":
            start = _after_space(text, end + 1)
            value, end = _decode(text, start)
            yield _Written(value, start, end)
            end = _after_space(text, end)
            if text[end : end + 1] not in (",", "]"):
                raise _NotOrdinary
        end += 1
    else:
        end += 1
    if _after_space(text, end) != len(text):
        raise _NotOrdinary


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _build_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    filled = dict(members)
    if len(filled) < len(members) or not all(map(str.isprintable, filled)):
        raise _NotOrdinary
    return filled


def _parse_number(text: str) -> Any:
    value = parse_plain_scalar(text)
    if type(value) is ScalarProblem:
        raise _NotOrdinary
    return value


def _refuse_constant(_: str) -> Never:
    raise _NotOrdinary


_decode = JSONDecoder(
    object_pairs_hook=_build_object, parse_int=_parse_number, parse_float=_parse_number, parse_constant=_refuse_constant
).raw_decode


def _check_limits(value: Any, text: str, limits: Limits, text_fields: frozenset[str]) -> None:
    """Raise _NotOrdinary if a document may exceed a limit, or has numbers where they stay as written."""
    if len(text) > limits.document_bytes or _most_nodes(text) > limits.nodes:
        raise _NotOrdinary
    if text.count("{") + text.count("[") > limits.depth and _is_deeper(value, limits.depth):
        raise _NotOrdinary
    for field in text_fields if type(value) is dict else ():
        inner = value.get(field)
        members = inner.values() if type(inner) is dict else inner if type(inner) is list else ()
        if any(type(member) in (int, float, bool) for member in members):
            raise _NotOrdinary


def _most_nodes(text: str) -> int:
    """No fewer than the nodes of ``text``."""
    return 1 + 2 * text.count(":") + text.count(",") + text.count("[")


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether more than ``depth`` lists and mappings are in each other."""
    level = [value] if type(value) in _CONTAINERS else []
    while level and depth >= 0:
        depth -= 1
        inner = (value.values() if type(value) is dict else value for value in level)
        level = [member for members in inner for member in members if type(member) in _CONTAINERS]
    return bool(level) or depth < 0
