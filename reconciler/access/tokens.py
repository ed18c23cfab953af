"""Secrets of credentials: random, and stored as their hashes only."""

from __future__ import annotations

import hashlib

SECRET_BYTES = 32
"""Random bytes of a secret."""


def hash_of(text: str) -> bytes:
    """What is stored of the credential ``text``: 256 random bits need no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
