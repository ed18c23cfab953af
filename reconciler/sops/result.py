"""The result of decrypting a document."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.model.finding import Pointer

MARK = b"sops"
"""A file without these bytes has no encrypted document."""

LOCKED, KEY_WRONG, MAC_BROKEN, METADATA = "secret-locked", "secret-key-wrong", "secret-mac-broken", "secret-metadata"


class SopsProblem(msgspec.Struct, frozen=True):
    """A fault at a value of an encrypted document."""

    rule: str
    at: Pointer
    message: str
    suggestion: str = ""


class DecryptedDocument(msgspec.Struct, frozen=True):
    """An encrypted document without its ``sops``.

    ``encrypted`` has the pointers of the encrypted values; in a ``locked`` document they stay so in ``value``.
    """

    value: dict[str, Any]
    encrypted: frozenset[Pointer] = frozenset()
    locked: bool = False
    troubles: tuple[SopsProblem, ...] = ()
