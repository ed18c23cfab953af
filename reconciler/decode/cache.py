"""Decoded files as the cache keeps them, and which of them it may keep."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from reconciler.errors import CorruptRowError
from reconciler.manifests.decoder import Decoded
from reconciler.model.key import Kind
from reconciler.model.revision import FileChange
from reconciler.sops.rules import RULES

if TYPE_CHECKING:
    from reconciler.source.repository import Repository

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Decoded).decode

_OPENING = frozenset(rule.id for rule in RULES)
"""Rules by which the same bytes may be right or wrong another day, with another identity."""

DecodedFile = tuple[FileChange, Decoded]
"""A file and what it says."""

DecodedFiles = Generator[DecodedFile, None, None]
"""What is to be closed by who goes no further: it writes to the cache on the way."""


def unpack(packed: bytes) -> Decoded:
    """What a file says, as it is cached. Raises CorruptRowError."""
    try:
        return _unpack(packed)
    except msgspec.DecodeError as error:
        raise CorruptRowError("blobs", "parsed") from error


class Blobs(msgspec.Struct, frozen=True):
    """How to get at the bytes of files: by blob id, with the size known without reading."""

    size: Callable[[str], int]
    read: Callable[[str], bytes]

    @classmethod
    def of(cls, repository: Repository) -> Blobs:
        """The blobs of a repository."""
        return cls(repository.size, repository.read)


class Cache(msgspec.Struct, frozen=True):
    """Where decoded blobs are remembered; ``put`` may throw them away."""

    get: Callable[[Sequence[str]], dict[str, bytes]]
    put: Callable[[list[tuple[str, bytes]]], None]


def holds_secrets(decoded: Decoded) -> bool:
    """Whether a file has secrets, be they broken, or anything else that was to be opened; that is not remembered."""
    if Kind.SECRET in [manifest.kind for manifest in decoded.manifests]:
        return True
    if not decoded.broken and not decoded.faults:
        return False
    broken = any(each.key.startswith(f"{Kind.SECRET}/") for each in decoded.broken)
    return broken or any(fault.rule in _OPENING for fault in decoded.faults)
