"""What can be refused before a file is parsed."""

from __future__ import annotations

import codecs

from reconciler.documents.json_compat import is_json
from reconciler.documents.limits import Limits
from reconciler.documents.line_column import position
from reconciler.model.finding import Fault

_BYTE_ORDERS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_AS_UTF8 = "save the file as UTF-8"

# The parser compares every handle with all before it.
_MOST_DIRECTIVES = 1_000


def check_encoding(raw: bytes, limits: Limits) -> Fault | None:
    """Why ``raw`` is not to be parsed: too large, not UTF-8 text, or made to keep the parser busy."""
    if len(raw) > limits.file_bytes:
        message = f"this file has {len(raw):,} bytes, more than the limit of {limits.file_bytes:,}"
        return Fault("too-large", message, 1, 1, "split the file; large data does not belong into manifests")
    for mark, name in _BYTE_ORDERS.items():
        if raw.startswith(mark):
            return Fault("encoding", f"this file is {name}, not UTF-8", 1, 1, _AS_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line, column = _after(raw[: error.start])
        return Fault("encoding", f"the byte 0x{raw[error.start]:02x} is not UTF-8", line, column, _AS_UTF8)
    if b"\0" in raw:
        line, column = _after(raw[: raw.index(b"\0")])
        return Fault("encoding", "a NUL byte: the file is UTF-16, or not text at all", line, column, _AS_UTF8)
    if len(text) > limits.document_bytes and is_json(raw):
        # All of it is one document: its escapes need not be repaired first, nor its values made.
        return Fault("too-large", too_large(len(text.rstrip()), limits), 1, 1, "split the document")
    if raw.count(b"%") > _MOST_DIRECTIVES and raw.count(b"%TAG") > _MOST_DIRECTIVES:
        message = f"%TAG occurs more than {_MOST_DIRECTIVES:,} times in this file"
        return Fault("too-many-directives", message, 1, 1, "remove the directives; no tag but the core ones is known")
    return None


def too_large(characters: int, limits: Limits) -> str:
    """What is wrong with a document of ``characters``."""
    return f"this document has {characters:,} characters, more than the limit of {limits.document_bytes:,}"


def _after(sound: bytes) -> tuple[int, int]:
    text = sound.decode("utf-8-sig")
    return position(text, len(text))
