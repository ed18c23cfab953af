"""Age: decrypts the data key of a document with identities, and encrypts it for recipients."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from reconciler.errors import EncryptionError
from reconciler.sops.cipher import KEY_BYTES
from reconciler.sops.metadata import SopsMetadata, Wrapped

_AGE = "AGE-SECRET-KEY-1"
_SSH = "-----BEGIN"


class KeyringError(EncryptionError):
    """A text is no identity or recipient; the message never quotes an identity."""


class Keyring(msgspec.Struct, frozen=True):
    """The identities that decrypt documents: the text of identity files, as age or OpenSSH write them.

    ``absence`` explains why there is none; ``required``: a document that they cannot decrypt is an error.
    """

    identities: tuple[str, ...] = ()
    absence: str = ""
    required: bool = False

    def __repr__(self) -> str:
        """Omits the identities, which no message may contain."""
        return f"Keyring({len(self.identities)} identities)"


class NoUsableKey(EncryptionError):
    """No identity decrypts the data key; the message names the attempts, the suggestion a remedy."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.suggestion = suggestion


def data_key(metadata: SopsMetadata, keyring: Keyring) -> bytes:
    """Decrypt the key of a document's values. Raises NoUsableKey."""
    if metadata.groups > 1:
        raise NoUsableKey(
            "the key is split among several key groups, which is not supported",
            "encrypt it again for one group of age recipients",
        )
    if not metadata.keys:
        whom = f"only for {', '.join(metadata.others)}" if metadata.others else "for no recipient"
        raise NoUsableKey(f"this is encrypted {whom}, not for an age recipient", "add an age recipient with sops")
    if not keyring.identities:
        raise NoUsableKey(
            keyring.absence or "there is no identity to decrypt this with",
            "name the file with the age identity under `secrets.identity` in the settings",
        )
    import pyrage

    identities = [identity for text in keyring.identities for identity in identities_of(text)]
    for wrapped in metadata.keys:
        key = _unwrap_key(pyrage, wrapped.enc, identities)
        if key:
            return key
    listed = ", ".join(_shorten_recipient(key.recipient) for key in metadata.keys)
    raise NoUsableKey(
        f"this is not encrypted for the identity of this host, but for: {listed}",
        "let someone who can decrypt it add this host's recipient: reconciler secret rotate FILE --add RECIPIENT",
    )


def new_key() -> bytes:
    """A fresh data key."""
    return os.urandom(KEY_BYTES)


def wrap_key(key: bytes, recipients: Iterable[str]) -> tuple[Wrapped, ...]:
    """Encrypt ``key`` for each of ``recipients``. Raises KeyringError for an invalid one."""
    import pyrage

    return tuple(
        Wrapped(fromkey, pyrage.encrypt(key, [recipient_of(fromkey)], armored=True).decode())
        for fromkey in dict.fromkeys(recipients)
    )


def recipient_of(text: str) -> Any:
    """A recipient: ``age1…``, or an SSH public key. Raises KeyringError."""
    import pyrage

    form = pyrage.ssh.Recipient if text.startswith("ssh-") else pyrage.x25519.Recipient
    try:
        return form.from_str(text)
    except (ValueError, pyrage.RecipientError):
        hint = "; this is an identity, which must stay secret" if text.startswith(_AGE) else ""
        raise KeyringError(f"this is neither age1… nor an ssh-ed25519 or ssh-rsa key{hint}") from None


@lru_cache(maxsize=16)
def identities_of(text: str) -> tuple[Any, ...]:
    """The identities in the text of a file: lines as age-keygen writes them, or one OpenSSH private key.

    Raises KeyringError if there is none, or for an invalid line.
    """
    import pyrage

    if text.lstrip().startswith(_SSH):
        try:
            return (pyrage.ssh.Identity.from_buffer(text.strip().encode() + b"\n"),)
        except (ValueError, pyrage.IdentityError):
            raise KeyringError("it has no SSH private key of type ed25519 or rsa without passphrase") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    identities = tuple(_parse_identity(number, line) for number, line in lines if line and not line.startswith("#"))
    if not identities:
        raise KeyringError("it has no line that begins with AGE-SECRET-KEY-1")
    return identities


def recipients_in(text: str) -> list[str]:
    """The recipients that belong to the identities in ``text``; those of SSH keys are unknown. Raises KeyringError."""
    return [str(identity.to_public()) for identity in identities_of(text) if hasattr(identity, "to_public")]


def _parse_identity(number: int, line: str) -> Any:
    import pyrage

    try:
        return pyrage.x25519.Identity.from_str(line)
    except (ValueError, pyrage.IdentityError):
        raise KeyringError(f"line {number} is not an identity that begins with AGE-SECRET-KEY-1") from None


def _unwrap_key(pyrage: Any, enc: str, identities: list[Any]) -> bytes:
    """The data key; empty if no identity fits."""
    try:
        key: bytes = pyrage.decrypt(enc.encode(), identities)
    except (ValueError, pyrage.DecryptError):
        return b""
    return key if len(key) == KEY_BYTES else b""


def _shorten_recipient(recipient: str) -> str:
    return recipient if len(recipient) <= 20 else f"{recipient[:16]}…"
