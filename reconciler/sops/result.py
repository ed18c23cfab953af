"""What comes of opening an encrypted document."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from reconciler.model.finding import Pointer

MARK = b"sops"
"""Without these bytes a file holds no encrypted document."""

LOCKED, KEY_WRONG, MAC_BROKEN, METADATA = "secret-locked", "secret-key-wrong", "secret-mac-broken", "secret-metadata"


class SopsProblem(NamedTuple):
    """What is wrong at a value of an encrypted document."""

    rule: str
    at: Pointer
    message: str
    suggestion: str = ""


class DecryptedDocument(msgspec.Struct, frozen=True):
    """An encrypted document without its ``sops``.

    ``encrypted`` leads to what is encrypted in the file; where it is ``locked``, that stands in ``value`` as it is.
    """

    value: dict[str, Any]
    encrypted: frozenset[Pointer] = frozenset()
    locked: bool = False
    troubles: tuple[SopsProblem, ...] = ()
