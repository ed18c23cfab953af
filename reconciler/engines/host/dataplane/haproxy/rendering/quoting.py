"""Texts of manifests as words of the configuration of HAProxy, so that none of them can be more than a text."""

from __future__ import annotations

import re
from urllib.parse import quote

LONGEST_LINE = 2000
"""Characters of a line of the configuration; HAProxy refuses a file with a line of 2,048."""
_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_REFERENCE = re.compile(r"%REQ\(([^()]*)\)%")
_BARE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_AUTHORITY = ":authority"


def quote_text(text: str) -> str:
    """``text`` as one word: nothing has a meaning between single quotes, and each one of its own is outside them."""
    printable = "".join(character for character in text if is_plain(character))
    return "'" + printable.replace("'", "'\\''") + "'"


def is_plain(text: str) -> bool:
    """Whether ``text`` is printable ASCII: ``quote_text`` then keeps all of it."""
    return text.isascii() and text.isprintable()


def is_token(text: str) -> bool:
    """Whether ``text`` can be the name of a header."""
    return _TOKEN.fullmatch(text) is not None


def format_text(text: str) -> str:
    """``text`` where HAProxy expects a format, as it is."""
    return text.replace("%", "%%")


def format_value(value: str) -> str:
    """The value of a header as a format: ``%REQ(NAME)%`` is that header of the request, all else is text."""
    parts = _REFERENCE.split(value)
    return "".join(_convert_reference(part) if at % 2 else format_text(part) for at, part in enumerate(parts))


def list_references(value: str) -> list[str]:
    """The names of headers in the value of a header, without ``:authority``."""
    return [name for name in _REFERENCE.findall(value) if name.lower() != _AUTHORITY]


def path_text(text: str) -> str:
    """``text`` as it can be at the start of a path in a request: other characters are percent-encoded."""
    return _BARE_PERCENT.sub("%25", quote(text, safe="/%:@!$&'()*+,;=-._~"))


def _convert_reference(name: str) -> str:
    if name.lower() == _AUTHORITY:
        return "%[var(txn.authority)]"
    return f"%[req.fhdr({name})]"
