"""JSON for a reader of YAML: valid files with escapes that YAML refuses."""

from __future__ import annotations

import re

import msgspec

from reconciler.documents.limits import LIMITS

_MOST_BYTES = 4 * LIMITS.document_bytes
"""A document of more bytes has more characters than a document may have, and is refused."""

_PAIR = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
"""One character beyond the first 65,536 as JSON escapes it, in two halves."""

_FROM_PAIR = re.compile(_PAIR.pattern + rb'[^"\\]*+(?:\\.[^"\\]*+)*+"')
"""The first such character of a string, and the rest of that string."""


def is_json(raw: bytes) -> bool:
    """Whether ``raw`` is one list or mapping in JSON; none of its values is made, and no escape is checked."""
    try:
        return raw[:1] in (b"{", b"[") and bool(msgspec.json.decode(raw, type=msgspec.Raw))
    except (msgspec.DecodeError, RecursionError):
        return False


def fix_json_surrogates(raw: bytes) -> bytes:
    """``raw``, or where it is one JSON document with characters in two halves, the same with these in one piece.

    Behind each such string are as many spaces as it has lost, so that the next value stands where it stood.
    """
    if raw[:1] not in (b"{", b"[") or len(raw) > _MOST_BYTES or b"\\ud" not in raw.lower():
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return raw
    return _FROM_PAIR.sub(_padded, raw)


def _padded(found: re.Match[bytes]) -> bytes:
    return _PAIR.sub(_joined, found[0]).ljust(len(found[0]))


def _joined(found: re.Match[bytes]) -> bytes:
    high, low = int(found[2], 16) - 0xD800, int(found[3], 16) - 0xDC00
    return found[1] + b"\\U%08X" % (0x10000 + (high << 10) + low)
