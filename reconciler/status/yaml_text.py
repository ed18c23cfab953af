"""Text for the status files: scalars that every YAML reader parses as text, and only printable characters."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from reconciler.printable import printable_yaml

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._@/-]*")
_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
_AMBIGUOUS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@lru_cache(maxsize=8192)
def format_word(text: str) -> str:
    """``text`` without quotes if every YAML reader parses it as text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _AMBIGUOUS:
        return text
    return quote_text(text)


def quote_text(text: str) -> str:
    """``text`` on one line in double quotes."""
    return printable_yaml(msgspec.json.encode(without_controls(text)).decode())


def without_controls(text: str) -> str:
    """``text`` on one line, with control characters, which our YAML must not contain, replaced by question marks."""
    return text if text.isprintable() else re.sub(_CONTROL, "?", text.replace("\n", " "))
