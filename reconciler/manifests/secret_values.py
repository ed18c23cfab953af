"""Separates secret data from its manifest: the body has ``***`` and a keyed digest, the data is passed separately."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

MASK = "***"


def encode_secret_data(content: Any) -> bytes:
    """The data of a secret as canonical JSON, separate from every body."""
    return msgspec.json.encode(content, order="deterministic")


def mask_values(content: Any, key: bytes) -> Any:
    """``content`` with each value replaced by ``***`` and a digest keyed with ``key``, so that a change still shows."""
    if isinstance(content, dict):
        return {name: mask_values(value, key) for name, value in content.items()}
    if isinstance(content, list):
        return [mask_values(value, key) for value in content]
    digest = hashlib.blake2b(msgspec.json.encode(content), key=key[:64], digest_size=8).hexdigest()
    return f"{MASK}{digest}"


def strip_digest(value: Any) -> Any:
    """A masked value without its digest: ``***``."""
    if isinstance(value, dict):
        return {name: strip_digest(member) for name, member in value.items()}
    if isinstance(value, list):
        return [strip_digest(member) for member in value]
    return MASK if isinstance(value, str) and value.startswith(MASK) else value
