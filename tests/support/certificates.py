"""Certificates and authorities for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = 86_400.0


class IssuedCertificate(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def chain_pem(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def locked_key_pem(self) -> bytes:
        """The private key with a passphrase."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))

    @property
    def pem(self) -> bytes:
        """Both."""
        return self.chain_pem + self.key_pem


def authority(name: str = "Authority of tests") -> IssuedCertificate:
    """An authority that signs certificates; the same one for the same name."""
    return _authority(name)


@cache
def _authority(name: str) -> IssuedCertificate:
    return _issue(_name(name), (), None, 0.0, 3650.0)


def issue(*names: str, start: float = -1.0, end: float = 90.0, by: str = "Authority of tests") -> IssuedCertificate:
    """A certificate for ``names``, hosts or addresses; its validity is in days from now."""
    return _issue(_name(names[0] if names else "client"), names, authority(by), start, end)


def issue_for_user(user: str, *groups: str, end: float = 90.0, by: str = "Authority of tests") -> IssuedCertificate:
    """A certificate of a client in the form of Kubernetes; its validity ends ``end`` days from now."""
    return _issue(_name(user, *groups), (), authority(by), -1.0, end)


def self_signed(*names: str) -> IssuedCertificate:
    """A certificate for ``names`` that only itself has signed."""
    return _issue(_name(names[0]), names, None, -1.0, 90.0)


def _name(common: str, *organizations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _issue(
    subject: x509.Name, names: Sequence[str], by: IssuedCertificate | None, start: float, end: float
) -> IssuedCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=start))
        .not_valid_after(now + timedelta(days=end))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), False)
    return IssuedCertificate(builder.sign(by.key if by else key, hashes.SHA256()), key)
