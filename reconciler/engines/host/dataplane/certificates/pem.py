"""Reads a certificate with its chain and private key from PEM, and refuses what cannot be served."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from reconciler.errors import ReconcilerError
from reconciler.model.kinds.secret import SecretValue

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate as Parsed

LARGEST = 1 << 20
"""Bytes of the largest file that is read: a chain with its key has a few thousand."""

_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_LONGEST_NAME = 253


class CertificateError(ReconcilerError):
    """Content that is not a certificate with its key. The message never quotes the content."""


class PemCertificate(msgspec.Struct, frozen=True):
    """A certificate for ``names``, valid between two times in seconds of the epoch.

    ``source`` is the file or secret that it comes from. ``pem`` is the certificate, its chain and its key, written
    anew, so that nothing else of the file gets anywhere. ``digest`` identifies ``pem``.
    """

    names: tuple[str, ...]
    not_before: float
    not_after: float
    source: str
    pem: str
    digest: str

    def __repr__(self) -> str:
        return f"Certificate({self.source}, {', '.join(self.names)})"


def read_certificate(content: bytes, source: str, key: bytes = b"") -> PemCertificate:
    """The certificate in ``content``, whose private key is in ``key`` or, without one, in ``content`` too.

    The certificate of the key comes first, in any order of the file; the others are its chain. Raises CertificateError.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    chain = _load_certificates(content)
    private = _private_key(key or content)
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    public = private.public_key().public_bytes(*form)
    own = next((certificate for certificate in chain if certificate.public_key().public_bytes(*form) == public), None)
    if own is None:
        raise CertificateError("the private key belongs to another certificate")
    names = _list_dns_names(own)
    if not names:
        raise CertificateError("the certificate has no DNS name (subjectAltName)")
    written = b"".join(
        member.public_bytes(Encoding.PEM)
        for member in (own, *(certificate for certificate in chain if certificate is not own))
    )
    written += private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    start, end = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    return PemCertificate(names, start, end, source, written.decode(), sha256(written).hexdigest()[:32])


def read_secret(value: SecretValue, source: str) -> PemCertificate:
    """The certificate in a secret of type tls or keypair, named ``source``. Raises CertificateError."""
    chain, key = secret_parts(value, "cert", "chain"), secret_parts(value, "key")
    return read_certificate(b"\n".join(chain), source, b"\n".join(key))


def secret_parts(value: SecretValue, *names: str) -> list[bytes]:
    """The texts of a secret, as far as it has them."""
    content = value.content if isinstance(value.content, dict) else {"payload": value.content}
    return [part.encode() for name in names if isinstance(part := content.get(name), str)]


def read_authorities(content: bytes) -> str:
    """The certificates of the authorities in ``content``, as PEM that is written anew. Raises CertificateError."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in _load_certificates(content))


def _load_certificates(content: bytes) -> list[Parsed]:
    from cryptography.x509 import load_pem_x509_certificates

    if len(content) > LARGEST:
        raise CertificateError("it is larger than 1 MiB")
    try:
        return load_pem_x509_certificates(content)
    except ValueError:
        raise CertificateError("it has no certificate in PEM form, or a damaged one") from None


def _private_key(content: bytes) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if len(content) > LARGEST:
        raise CertificateError("the file of its key is larger than 1 MiB")
    match = re.search(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.{1,20000}?-----END \1-----", content, re.DOTALL)
    if match is None:
        raise CertificateError("it has no private key in PEM form")
    try:
        return load_pem_private_key(match[0] + b"\n", None)
    except TypeError:
        raise CertificateError("its private key has a passphrase; a key without one is needed") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError("its private key is damaged, or of an unknown type") from None


def _list_dns_names(certificate: Parsed) -> tuple[str, ...]:
    """The DNS names, lower-case; one of another form cannot be a host name, and is left out."""
    from cryptography.x509 import DNSName, ExtensionNotFound, SubjectAlternativeName

    try:
        alternative_name = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        names = {name.lower().rstrip(".") for name in alternative_name.get_values_for_type(DNSName)}
    except (ExtensionNotFound, ValueError):
        return ()
    return tuple(sorted(name for name in names if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name)))
