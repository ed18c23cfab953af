"""Single values as SOPS writes them: ``ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]``, in Base64."""

from __future__ import annotations

import binascii
import math
import os
import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from reconciler.errors import EncryptionError

Value = str | int | float | bool

KEY_BYTES = 32
_IV_BYTES = 32
_TAG_BYTES = 16
_FORM = r"ENC\[AES256_GCM,data:([A-Za-z0-9+/=]+),iv:([A-Za-z0-9+/=]+),tag:([A-Za-z0-9+/=]+),type:([a-z]+)\]"
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})

COMMENT = "comment"
"""The type of the text behind a ``#``."""


class DecryptionFailed(EncryptionError):
    """A value cannot be decrypted: the key or the place is another one, or it was changed. It has no message."""


class EncryptedValue(msgspec.Struct, frozen=True):
    """An encrypted value, its parts as bytes."""

    content: bytes
    iv: bytes
    tag: bytes
    type: str


def parse_encrypted_value(text: str) -> EncryptedValue | None:
    """The parts of an encrypted value; None if ``text`` is not one."""
    match = re.fullmatch(_FORM, text)
    if match is None:
        return None
    try:
        content, iv, tag = (binascii.a2b_base64(part, strict_mode=True) for part in match.group(1, 2, 3))
    except binascii.Error:
        return None
    return EncryptedValue(content, iv, tag, match[4])


def additional_data(path: Sequence[str]) -> bytes:
    """Binds a value to its place: the keys that lead to it, each followed by a colon; indices do not count."""
    return (":".join(path) + ":").encode()


def decrypt_value(sealed: EncryptedValue, key: bytes, bound: bytes) -> Value:
    """Decrypt ``sealed``. Raises DecryptionFailed for another ``key`` or place ``bound``."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        plain = AESGCM(key).decrypt(sealed.iv, sealed.content + sealed.tag, bound)
        return _convert_text(plain.decode(), sealed.type)
    except (InvalidTag, ValueError):
        raise DecryptionFailed from None


def encrypt_value(value: Value, key: bytes, bound: bytes, iv: bytes = b"", kind: str = "") -> str:
    """Encrypt ``value`` for the place ``bound``, with ``iv`` or a fresh one.

    ``kind`` overrides the type. An empty text stays empty, as with SOPS.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if value == "":
        return ""
    iv = iv or os.urandom(_IV_BYTES)
    sealed = AESGCM(key).encrypt(iv, as_bytes(value), bound)
    parts = (sealed[:-_TAG_BYTES], iv, sealed[-_TAG_BYTES:])
    content, iv_text, tag = (binascii.b2a_base64(part, newline=False).decode() for part in parts)
    return f"ENC[AES256_GCM,data:{content},iv:{iv_text},tag:{tag},type:{kind or _type_of(value)}]"


def as_bytes(value: Value) -> bytes:
    """``value`` as it is encrypted and hashed: booleans capitalized, numbers without an exponent."""
    if isinstance(value, bool):
        return b"True" if value else b"False"
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
    return str(value).encode()


def _type_of(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "str"


def _require_int64(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise DecryptionFailed
    return number


def _require_finite_number(number: float) -> float:
    if not math.isfinite(number):
        raise DecryptionFailed
    return number


def _convert_text(text: str, kind: str) -> Value:
    if kind == "int":
        return _require_int64(int(text))
    if kind == "float":
        return _require_finite_number(float(text))
    if kind == "bool" and text in _TRUE | _FALSE:
        return text in _TRUE
    if kind in ("str", "bytes", "time", COMMENT):
        return text
    raise DecryptionFailed
