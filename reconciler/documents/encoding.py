"""Checks and repairs the bytes of a file before the parser reads them."""

from __future__ import annotations

import codecs
import re

import msgspec

from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import find_position
from reconciler.model.finding import Fault

_MOST_BYTES = 4 * LIMITS.document_bytes
"""A larger document has too many characters, and is refused."""

_PAIR = rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
"""A pair of surrogates, as JSON escapes a character beyond the first 65,536."""

_FROM_PAIR = _PAIR + rb'[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""The first pair of surrogates in a string, and the rest of the string."""


def is_json(raw: bytes) -> bool:
    """Whether ``raw`` is one list or mapping in JSON; decodes no value and checks no escape."""
    try:
        return raw[:1] in (b"{", b"[") and bool(msgspec.json.decode(raw, type=msgspec.Raw))
    except (msgspec.DecodeError, RecursionError):
        return False


def is_json_list(raw: bytes) -> bool:
    """Whether ``raw`` is a list in JSON: as a file of manifests, its items are documents."""
    begin = raw.lstrip()
    return begin[:1] == b"[" and is_json(begin)


def fix_json_surrogates(raw: bytes) -> bytes:
    """``raw``; in a JSON document each pair of surrogates is replaced by its character.

    Spaces after each changed string fill its former length, so that the positions of later values stay.
    """
    if raw[:1] not in (b"{", b"[") or len(raw) > _MOST_BYTES or b"\\ud" not in raw.lower():
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return raw
    return re.sub(_FROM_PAIR, _replace_pairs, raw)


def _replace_pairs(match: re.Match[bytes]) -> bytes:
    return re.sub(_PAIR, _join_surrogates, match[0]).ljust(len(match[0]))


def _join_surrogates(match: re.Match[bytes]) -> bytes:
    high, low = int(match[2], 16) - 0xD800, int(match[3], 16) - 0xDC00
    return match[1] + b"\\U%08X" % (0x10000 + (high << 10) + low)


_BYTE_ORDERS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_AS_UTF8 = "save the file as UTF-8"

# The parser compares every handle with all before it.
_MOST_DIRECTIVES = 1_000


def check_encoding(raw: bytes, limits: Limits, *, is_stream: bool = False) -> Fault | None:
    """Why ``raw`` must not be parsed: too large, not UTF-8, or slow on purpose.

    ``is_stream``: a list in JSON is many documents, whose sizes are counted when they are read.
    """
    if len(raw) > limits.file_bytes:
        message = f"this file has {len(raw):,} bytes, more than the limit of {limits.file_bytes:,}"
        return Fault("too-large", message, 1, 1, "split the file; manifests are no place for large data")
    for mark, name in _BYTE_ORDERS.items():
        if raw.startswith(mark):
            return Fault("encoding", f"this file is {name}, not UTF-8", 1, 1, _AS_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line, column = end_of(raw[: error.start])
        return Fault("encoding", f"the byte 0x{raw[error.start]:02x} is not UTF-8", line, column, _AS_UTF8)
    if b"\0" in raw:
        line, column = end_of(raw[: raw.index(b"\0")])
        return Fault("encoding", "a NUL byte: the file is UTF-16, or not text at all", line, column, _AS_UTF8)
    if len(text) > limits.document_bytes and not (is_stream and raw.lstrip()[:1] == b"[") and is_json(raw):
        # It is one document, so its size is known before its escapes are repaired and its values are made.
        return Fault("too-large", too_large(len(text.rstrip()), limits), 1, 1, "split the document")
    if raw.count(b"%") > _MOST_DIRECTIVES and raw.count(b"%TAG") > _MOST_DIRECTIVES:
        message = f"%TAG occurs more than {_MOST_DIRECTIVES:,} times in this file"
        return Fault("too-many-directives", message, 1, 1, "remove the directives; only the core tags are supported")
    return None


def too_large(characters: int, limits: Limits) -> str:
    """The fault of a document of too many ``characters``."""
    return f"this document has {characters:,} characters, more than the limit of {limits.document_bytes:,}"


def end_of(sound: bytes) -> tuple[int, int]:
    """Line and column, counted from 1, of the byte after ``sound``, the UTF-8 text before it."""
    text = sound.decode("utf-8-sig")
    return find_position(text, len(text))
