"""Decoded files as the cache stores them, and which of them it may store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from reconciler.documents.locator import Locator
from reconciler.errors import CorruptRowError
from reconciler.manifests.decoder import Decoded
from reconciler.model.key import Kind
from reconciler.model.revision import FileChange, is_json
from reconciler.sops.rules import RULES

if TYPE_CHECKING:
    from reconciler.source.repository import Repository

pack = msgspec.msgpack.Encoder().encode

_OPENING = frozenset(rule.id for rule in RULES)
"""Rules whose verdict on the same bytes changes with the age identity of this host."""

DecodedFile = tuple[FileChange, Decoded]
"""A file and its content."""

DecodedFiles = Generator[DecodedFile, None, None]
"""Writes to the cache while it runs; a caller that stops early closes it."""


def unpack_file(packed: bytes) -> Decoded:
    """A decoded file from its cached form. Raises CorruptRowError."""
    try:
        return msgspec.msgpack.decode(packed, type=Decoded)
    except msgspec.DecodeError as error:
        raise CorruptRowError("blobs", "parsed") from error


class Blobs(msgspec.Struct, frozen=True):
    """The bytes of files by the names of their blobs (``blob_name``); ``size`` reads nothing."""

    size: Callable[[str], int]
    read: Callable[[str], bytes]

    @classmethod
    def of(cls, repository: Repository) -> Blobs:
        """The blobs of a repository."""
        return cls(repository.size, repository.read)

    def locator(self, blob: str) -> Locator:
        """The positions in the documents of a file."""
        return Locator(self.read(blob), is_json=is_json(blob))


class Cache(msgspec.Struct, frozen=True):
    """Stores decoded blobs by id; ``put`` may drop them."""

    get: Callable[[Sequence[str]], dict[str, bytes]]
    put: Callable[[list[tuple[str, bytes]]], None]


def public_id(blob: str) -> str:
    """The id under which the cache has the decoded form of ``blob`` without its secrets."""
    return f"{blob}#without-secrets"


def holds_secrets(decoded: Decoded) -> bool:
    """Whether a file has secrets, valid or not, or anything encrypted; such a file is never cached."""
    if Kind.SECRET in [manifest.kind for manifest in decoded.manifests]:
        return True
    if not decoded.broken and not decoded.faults:
        return False
    broken = any(broken.key.startswith(f"{Kind.SECRET}/") for broken in decoded.broken)
    return broken or any(fault.rule in _OPENING for fault in decoded.faults)
