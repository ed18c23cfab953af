"""Text fit for the status files: scalars as YAML that any reader takes for text, and nothing unprintable."""

from __future__ import annotations

import json
import re
from functools import lru_cache

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._@/-]*")
_AMBIGUOUS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@lru_cache(maxsize=8192)
def word(text: str) -> str:
    """``text`` unquoted where no YAML reader could take it for anything but text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _AMBIGUOUS:
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """``text`` on one line in double quotes."""
    return json.dumps(printable(text), ensure_ascii=False)


def printable(text: str) -> str:
    """``text`` on one line; what cannot be printed becomes a question mark."""
    return _UNPRINTABLE.sub("?", text.replace("\n", " "))
