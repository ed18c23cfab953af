"""Which files in JSON are manifests: most in a repository are something else."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from reconciler.model.key import KINDS

_KINDS = "|".join(sorted(KINDS))
_LIST = b'"list"'
"""The kind of an answer with manifests. It is none itself, which people should read where they commit one."""
_SEALED = rb"ENC\["
"""How a kind begins that SOPS has encrypted."""
_MENTION = re.compile(rb'"kind"[ \t\r\n]*+:[ \t\r\n]*+"(?:(?:%s)"|%s)' % (_KINDS.encode(), _SEALED))
_KIND = re.compile(rb'"(?:%s)"' % _KINDS.encode())
_TOKEN = re.compile(r'"((?:[^"\\\n]|\\[^\n])*+)"?|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|([{}\[\]:,])')
_MOST_CHARACTERS = 256 * 1024
"""How much of a file with faults is searched for the kind and the name of a manifest."""


class Named(NamedTuple):
    """What names a manifest in a file with faults; "" where it lacks a field."""

    kind: str
    name: str
    gvc: str


class _Fields(msgspec.Struct):
    """The fields at the root of a document, as written."""

    kind: msgspec.Raw = msgspec.Raw(b"")
    name: msgspec.Raw = msgspec.Raw(b"")
    sops: msgspec.Raw = msgspec.Raw(b"")
    items: msgspec.Raw = msgspec.Raw(b"")

    def is_manifest(self) -> bool:
        """Whether it has a kind of ours, or an encrypted one, and a name."""
        kind, is_sealed = bytes(self.kind), bool(bytes(self.sops))
        is_ours = _KIND.fullmatch(kind) or (is_sealed and re.match(b'"' + _SEALED, kind))
        return bool(is_ours) and bytes(self.name).startswith(b'"')


_document = msgspec.json.Decoder(_Fields).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_json_manifest(raw: bytes) -> bool:
    """Whether the content of a file ``.json`` is a manifest, or was meant to be one.

    That is an object with ``kind``, one of ours, and ``name``, a text, or a list with such an object. An answer of the
    platform with several (``{"kind": "list", "items": [...]}``) was meant to be one, and is a fault. The cost is
    linear, and most other files cost one search.
    """
    if _MENTION.search(raw) is None:
        return False
    try:
        return _has_manifest(raw)
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return any(named.kind and named.name for named in named_in(raw))


def _has_manifest(raw: bytes) -> bool:
    if raw.lstrip()[:1] == b"[":
        return any(map(_is_manifest, _items(raw)))
    root = _document(raw)
    if bytes(root.kind) == _LIST and bytes(root.items).startswith(b"["):
        return any(map(_is_manifest, _items(root.items)))
    return root.is_manifest()


def _is_manifest(item: msgspec.Raw) -> bool:
    return bytes(item).startswith(b"{") and _document(item).is_manifest()


def named_in(raw: bytes) -> Iterator[Named]:
    """What names the manifests of a file that is JSON with faults, such as a comment or a missing bracket."""
    text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")[:_MOST_CHARACTERS]
    fields: dict[str, str] = {}
    depth, root, word, key = 0, 1, "", ""
    for token in _TOKEN.finditer(text):
        sign = token[2] or ""
        if sign in ("{", "["):
            if key and depth == root:
                fields.setdefault(key, "")
            root = 2 if sign == "[" and depth == 0 else root
            depth += 1
        elif sign in ("}", "]"):
            depth -= 1
            if depth < root:
                yield _identify_manifest(fields)
                fields = {}
        if depth == root and token[1] is not None:
            if key:
                fields.setdefault(key, token[1])
            word, key = token[1], ""
        elif sign == ":" and depth == root:
            key = word
        elif sign:
            word = key = ""
    yield _identify_manifest(fields)


def _identify_manifest(fields: dict[str, str]) -> Named:
    kind = fields.get("kind", "")
    is_ours = kind in KINDS or ("sops" in fields and kind.startswith("ENC["))
    return Named(kind if is_ours else "", fields.get("name", ""), fields.get("gvc", ""))
