"""The outer form of PEM texts, and whether a key belongs to a certificate or a public key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_LARGEST = 1 << 16
"""Characters of the longest texts that are compared: a chain with its key has a few thousand."""
_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"


def fault_in(text: str, ending: str) -> str:
    """Why ``text`` is not PEM with a block whose label ends with ``ending``; "" if it is.

    The answer quotes nothing of ``text``, which may be a secret. Its time is linear.
    """
    label, size = "", 0
    labels: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            if label:
                return "a block begins before the one above it ends"
            label, size = line[len(_BEGIN) : -len(_DASHES)], 0
        elif line.startswith(_END):
            if not label or line != f"{_END}{label}{_DASHES}":
                return "an END line does not fit the BEGIN line above it"
            if not size or size % 4:
                return "a block is empty or cut short"
            labels.append(label)
            label = ""
        elif label and ":" not in line:
            if not _BASE64.issuperset(line):
                return "a block has characters that are not base64"
            size += len(line)
    if label:
        return "a block has no END line"
    if not labels:
        return "it has no BEGIN line"
    return "" if any(label.endswith(ending) for label in labels) else "it contains another block"


def is_pair(public: str, private: str) -> bool:
    """Whether the key ``private`` belongs to ``public``, a certificate with its chain or a public key.

    Both are PEM. True also for what cannot be read, such as a key with a passphrase: programs may read more.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if len(public) + len(private) > _LARGEST:
        return True
    try:
        # Checks of an RSA key take as long as its author likes.
        key = load_pem_private_key(private.encode(), None, unsafe_skip_rsa_key_validation=True)
        own = _bytes_of(key.public_key())
        certified = [_bytes_of(public_key) for public_key in _public_keys(public.encode())]
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return True
    return own in certified


def _public_keys(text: bytes) -> Iterator[Any]:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificates

    if b"CERTIFICATE-----" not in text:
        yield load_pem_public_key(text)
        return
    for certificate in load_pem_x509_certificates(text):
        yield certificate.public_key()


def _bytes_of(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return raw
