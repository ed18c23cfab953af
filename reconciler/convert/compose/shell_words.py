"""Splits a command into words as a shell does; in contrast to ``shlex`` its time is linear in a long word."""

from __future__ import annotations

import json
import re

from reconciler.convert.compose.nodes import CONTROL

_PIECE = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)"""
    r"""|(?P<plain>[^\s'"\\]+|\s)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r'\\(["\\])')


def split_words(text: str) -> list[str]:
    """The words of ``text``: parted by blanks, with quotes and backslashes removed. Raises ValueError if one of these
    has no end."""
    words: list[str] = []
    parts: list[str] | None = None
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError("a quote or a backslash has no end")
        at = match.end()
        if match["blank"] is None:
            parts = [] if parts is None else parts
            parts.append(
                _ESCAPE.sub(r"\1", match["double"])
                if match["double"] is not None
                else match["single"] or match["escaped"] or match["plain"] or ""
            )
        elif parts is not None:
            words.append("".join(parts))
            parts = None
    return words if parts is None else [*words, "".join(parts)]


def read_json_words(text: str) -> list[str]:
    """The words of a command that is written as a JSON list; empty where ``text`` is none."""
    if not text.startswith("["):
        return []
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    is_words = isinstance(parsed, list) and all(isinstance(value, str) and _is_text(value) for value in parsed)
    return parsed if is_words else []


def _is_text(text: str) -> bool:
    """Whether a manifest can have ``text``: JSON has escapes for halves of characters and controls."""
    return not CONTROL.search(text) and not any("\ud800" <= character <= "\udfff" for character in text)
