"""Env files of compose: a line is `NAME=value`, with quotes, comments and variables."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from reconciler.convert.compose.interpolation import InterpolationError, interpolate_text
from reconciler.errors import ParseError

_LINE = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][-.A-Za-z0-9_]*)[ \t]*(?:(?P<sign>[=:])[ \t]*|$)")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'")
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "$": "$$"}


class EnvFileError(ParseError):
    """A line of an env file is not understood; the message names the line, and no value."""


class _Entry(NamedTuple):
    """A variable; ``value`` is None where the line has the name alone, ``expands`` if variables in it count."""

    name: str
    value: str | None
    expands: bool


def parse_env_file(raw: bytes, environ: Mapping[str, str], *, plain: bool = False) -> dict[str, str]:
    """The variables of an env file, in order.

    A value may use variables of ``environ``, which win, and of former lines. A name alone takes its value from
    ``environ``, and is left out if that has none. ``plain`` takes the text behind the sign as it is. Raises
    EnvFileError.
    """
    text = _decode_text(raw)
    variables: dict[str, str] = {}
    scope = ChainMap(cast("dict[str, str]", environ), variables)
    for entry in _list_entries(text, plain=plain):
        if entry.value is None:
            variables |= {entry.name: environ[entry.name]} if entry.name in environ else {}
        else:
            variables[entry.name] = _expand_variables(entry.value, scope) if entry.expands else entry.value
    return variables


def names_in_env_file(raw: bytes) -> list[str]:
    """The names of the variables of an env file, in order. Raises EnvFileError."""
    return [entry.name for entry in _list_entries(_decode_text(raw), plain=False)]


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise EnvFileError("it is not text in UTF-8") from None


def _list_entries(text: str, *, plain: bool) -> Iterator[_Entry]:
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if not line or line.startswith("#"):
            at = end + 1
            continue
        begin = at + len(text[at:end]) - len(text[at:end].lstrip())
        match = _LINE.match(text, begin, end)
        if match is None:
            raise EnvFileError(f"line {text.count(chr(10), 0, at) + 1} of it is not NAME=value")
        entry, at = _parse_entry(text, match, end, plain=plain)
        yield entry


def _parse_entry(text: str, match: re.Match[str], end: int, *, plain: bool) -> tuple[_Entry, int]:
    """The variable of a line, and where the next line begins."""
    name, begin = match["name"], match.end()
    if match["sign"] is None:
        return _Entry(name, None, expands=False), end + 1
    if plain:
        return _Entry(name, text[begin:end], expands=False), end + 1
    for quoted, expands in ((_DOUBLE, True), (_SINGLE, False)):
        if literal := quoted.match(text, begin):
            value = _ESCAPE.sub(lambda part: _ESCAPES.get(part[1], part[0][-1]), literal[1]) if expands else literal[1]
            after = text.find("\n", literal.end())
            return _Entry(name, value, expands), len(text) if after < 0 else after + 1
    return _Entry(name, _COMMENT.sub("", text[begin:end], count=1).rstrip(), expands=True), end + 1


def _expand_variables(value: str, environ: Mapping[str, str]) -> str:
    """``value`` with its variables replaced; as it is where a dollar sign begins none, as in many passwords."""
    try:
        return interpolate_text(value, environ).text
    except InterpolationError:
        return value
