"""Writes values as block YAML that every reader reads alike, including our own strict one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from reconciler.documents.scalars import parse_plain_scalar
from reconciler.printable import UNSAFE

_INDICATORS = frozenset("-?:,[]{}#&*!|>'\"%@`=~<. ")
"""First characters that need quotes; most of them only before certain others."""
_NUMERIC = re.compile(r"[-+0-9][-+0-9:._ TZxobe]*", re.IGNORECASE)
"""Texts that some reader takes for a number, a date or a time; it also matches some harmless ones."""
_OPTION = re.compile("--?[a-zA-Z]")
_FORMER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_BREAKS = re.compile(rf"[\x00-\x08\x0b-\x1f{UNSAFE}]")
_BUILTIN = (dict, list, str, int, float)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Style(NamedTuple):
    """How lists and texts of several lines are written."""

    has_indented_lists: bool = True
    """Whether lists are indented below their key."""
    has_blocks: bool = True
    """Whether texts of several lines are literal blocks where they can be, and not in quotes."""


STYLE = Style()


def render_document(value: Any) -> str:
    """``value`` as one YAML document in its own order; ends with a newline.

    It consists of dict, list, str, int, float, bool and None, or of what msgspec turns into these, such as tuples. Any
    other value is a TypeError. Lists are indented below their key, texts of several lines are literal blocks, and
    nothing is folded.
    """
    value = _convert_to_builtin(value)
    if isinstance(value, dict | list) and value:
        return "".join(f"{line}\n" for line in write_lines(value))
    return f"{_render_leaf(value, '')}\n"


def render_stream(values: Iterable[Any]) -> str:
    """Each of ``values`` as a YAML document, separated by ``---``."""
    return "---\n".join(map(render_document, values))


def render_scalar(text: str) -> str:
    """``text`` on one line: plain where every reader takes it for text, else in quotes."""
    if text and _is_plain(text):
        return text
    if ('"' in text or "\\" in text) and text.isprintable() and not _BREAKS.search(text):
        return "'" + text.replace("'", "''") + "'"
    quoted = "".join(_ESCAPES.get(character, character) for character in text)
    return f'"{_BREAKS.sub(_escape_character, quoted)}"'


def after_key(value: str | int | float | bool | None, indent: str) -> str:
    """A scalar after a key; lines of a block begin with ``indent``, and without one it is a single line."""
    return _render_leaf(value, indent)


def write_lines(value: dict[str, Any] | list[Any], style: Style = STYLE) -> Iterator[str]:
    """The lines of ``value``, which is not empty, in block style."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _render_entry(f"{render_scalar(str(name))}:", member, style)
        return
    for item in map(_convert_to_builtin, value):
        if isinstance(item, dict | list) and item:
            first, *rest = write_lines(item, style)
            yield f"- {first}"
            yield from (f"  {line}" if line else "" for line in rest)
        else:
            yield from _render_entry("-", item, style)


def _convert_to_builtin(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value if isinstance(value, _BUILTIN) or value is None else msgspec.to_builtins(value)


def _render_entry(head: str, value: Any, style: Style) -> Iterator[str]:
    value = _convert_to_builtin(value)
    if isinstance(value, dict | list) and value:
        yield head
        indent = "  " if style.has_indented_lists or isinstance(value, dict) else ""
        yield from (f"{indent}{line}" if line else "" for line in write_lines(value, style))
    else:
        yield from f"{head} {_render_leaf(value, '  ' if style.has_blocks else '')}".split("\n")


def _render_leaf(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _render_literal(value, indent) if indent and _is_block(value) else render_scalar(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _render_float(value)
    if isinstance(value, int):
        return str(value)
    return "{}" if value == {} else "[]"


def _render_float(value: float) -> str:
    """A float with a point: some readers take ``1e20`` for text."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _is_plain(text: str) -> bool:
    if (text[0] in _INDICATORS and not _OPTION.match(text)) or text[-1] in " :" or ": " in text or " #" in text:
        return False
    if _NUMERIC.fullmatch(text):
        return False
    return (
        text.lower() not in _FORMER_WORDS and text.isprintable() and text.isascii() and parse_plain_scalar(text) == text
    )


def _is_block(text: str) -> bool:
    """Whether ``text`` fits a literal block, whose first line decides the indentation."""
    return "\n" in text and text[0] not in " \n\t" and text.strip(" \n") != "" and not _BREAKS.search(text)


def _render_literal(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    sign = "|" if ends == 1 else "|-" if ends == 0 else "|+"
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")]
    return "\n".join([sign, *lines, *[""] * (ends - 1)])


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
