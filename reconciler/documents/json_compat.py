"""JSON for a reader of YAML: valid files with escapes that YAML refuses."""

from __future__ import annotations

import re

import msgspec

_PAIR = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
"""One character beyond the first 65,536 as JSON escapes it, in two halves."""


def fix_json_surrogates(raw: bytes) -> bytes:
    """``raw``, or where it is one JSON document with characters in two halves, the same with these in one piece."""
    if raw[:1] not in (b"{", b"[") or b"\\ud" not in raw.lower():
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return raw
    return _PAIR.sub(_joined, raw)


def _joined(found: re.Match[bytes]) -> bytes:
    high, low = int(found[2], 16) - 0xD800, int(found[3], 16) - 0xDC00
    return found[1] + b"\\U%08X" % (0x10000 + (high << 10) + low)
