"""Decodes a file of many documents by decoding those alone that differ from its former version."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict

import msgspec

from reconciler.documents.ignore_comments import MOST_COMMENTS, UnusedComment
from reconciler.documents.limits import LIMITS
from reconciler.manifests.decoder import Decoded, decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rule_check import MOST_FAULTS
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import Kind
from reconciler.model.resource import Manifest
from reconciler.sops.result import MARK as ENCRYPTED

FEWEST = 10
"""A file with fewer documents is decoded whole: that takes no longer."""

_SEPARATOR = b"\n---\n"
_OTHER_MARK = re.compile(rb"\n(?:---(?!\n)|\.\.\.|%)")
"""A separator with content, the end of a document or a directive. Where one is, documents are not what is between
lines of three dashes."""
_WHOLE = (ENCRYPTED, b"&", b"\xef\xbb\xbf", b"\r")
"""What concerns a file as a whole, or can: encryption, anchors, marks of the encoding."""


class _Part(msgspec.Struct, frozen=True):
    """The text between two separators, and the number of its first line, from 1."""

    text: bytes
    line: int


class _Content(msgspec.Struct, frozen=True):
    """What a part contains, at most one manifest, and the warnings about it; its lines count from those of the part."""

    manifest: Manifest | None = None
    faults: tuple[Fault, ...] = ()
    unused_comments: tuple[UnusedComment, ...] = ()


def has_many_documents(raw: bytes) -> bool:
    """Whether it takes less time to decode ``raw`` by document than whole, if a few have changed."""
    return raw.count(_SEPARATOR) >= FEWEST


def decode_by_document(raw: bytes, former: bytes, baseline: Decoded, dialect: ManifestContext) -> Decoded | None:
    """Decode ``raw``, with the manifests of equal documents of ``former``.

    ``baseline`` is the decoded form of ``former``, or ``without_secrets`` of it. The result is that of all; None if
    only ``decode`` gives it: for a file with a fault, for example.
    """
    parts = _split_parts(raw)
    if not (_is_divisible(raw) and _is_divisible(former) and _is_mergeable(baseline)):
        return None
    if len(parts) > LIMITS.documents or _most_nodes(raw) > LIMITS.file_nodes_at(len(parts)):
        return None
    contents = _map_contents(former, baseline)
    manifests: list[Manifest] = []
    faults: list[Fault] = []
    unused: list[UnusedComment] = []
    for part in parts:
        if part.text not in contents:
            decoded = decode_manifests(part.text, dialect)
            if decoded.documents > len(decoded.manifests) or not _is_mergeable(decoded):
                return None
            manifest = decoded.manifests[0] if decoded.manifests else None
            contents[part.text] = _Content(manifest, decoded.faults, decoded.unused_comments)
        content, by = contents[part.text], part.line - 1
        if content.manifest is not None:
            line = content.manifest.line + by
            manifests.append(msgspec.structs.replace(content.manifest, position=len(manifests), line=line))
        faults += (_moved_fault(fault, by) for fault in content.faults)
        unused += (_moved_comment(comment, by) for comment in content.unused_comments)
    if len(faults) > MOST_FAULTS:
        return None
    return Decoded(tuple(manifests), tuple(faults), len(manifests), (), tuple(unused))


def without_secrets(decoded: Decoded) -> Decoded | None:
    """``decoded`` without its secrets, for the cache; None for a file that is not decoded by document."""
    if decoded.documents > len(decoded.manifests) or not _is_mergeable(decoded):
        return None
    manifests = tuple(manifest for manifest in decoded.manifests if manifest.kind is not Kind.SECRET)
    secret = f"{Kind.SECRET}/"
    faults = tuple(fault for fault in decoded.faults if fault.key and not fault.key.startswith(secret))
    return msgspec.structs.replace(decoded, manifests=manifests, faults=faults)


def _split_parts(raw: bytes) -> list[_Part]:
    *texts, last = raw.split(_SEPARATOR)
    parts, line = [], 1
    for text in (*(text + b"\n" for text in texts), last):
        parts.append(_Part(text, line))
        line += text.count(b"\n") + 1
    return parts


def _map_contents(raw: bytes, decoded: Decoded) -> dict[bytes, _Content]:
    """The content of each part of ``raw`` that has a known manifest, by its text."""
    parts = _split_parts(raw)
    lines = [part.line for part in parts]

    def part_at(line: int) -> _Part:
        return parts[bisect_right(lines, line) - 1]

    faults: defaultdict[_Part, list[Fault]] = defaultdict(list)
    for fault in decoded.faults:
        part = part_at(fault.line)
        faults[part].append(_moved_fault(fault, 1 - part.line))
    unused: defaultdict[_Part, list[UnusedComment]] = defaultdict(list)
    for comment in decoded.unused_comments:
        part = part_at(comment.line)
        unused[part].append(_moved_comment(comment, 1 - part.line))
    contents: dict[bytes, _Content] = {}
    for manifest in decoded.manifests:
        part = part_at(manifest.line)
        moved = msgspec.structs.replace(manifest, line=manifest.line - part.line + 1)
        contents[part.text] = _Content(moved, tuple(faults[part]), tuple(unused[part]))
    return contents


def _moved_fault(fault: Fault, by: int) -> Fault:
    return msgspec.structs.replace(fault, line=fault.line + by)


def _moved_comment(comment: UnusedComment, by: int) -> UnusedComment:
    return comment._replace(line=comment.line + by)


def _is_mergeable(decoded: Decoded) -> bool:
    """Whether each fault concerns one document. The advice of an error may be about the whole file."""
    return not decoded.broken and all(
        fault.line and fault.severity is not Severity.ERROR and fault.rule != "server-owned-field"
        for fault in decoded.faults
    )


def _is_divisible(raw: bytes) -> bool:
    """Whether each document of ``raw`` means the same in a file of its own."""
    few = raw.count(b"reconciler:") <= MOST_COMMENTS
    return few and not any(mark in raw for mark in _WHOLE) and _OTHER_MARK.search(b"\n" + raw) is None


def _most_nodes(raw: bytes) -> int:
    """No fewer than the nodes of ``raw``, which has no aliases: each is a document, an item, a key or its value."""
    keys = raw.count(b":") + raw.count(b"?")
    return 2 * keys + raw.count(b"-") + raw.count(b",") + raw.count(b"[") + 1
