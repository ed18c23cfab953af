"""Encrypted documents: locked, opened with a key, and shown."""

from __future__ import annotations

from functools import cache

from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.sops.encrypt import EncryptionRules, decrypt_file, encrypt_secrets
from reconciler.sops.keys import Keyring
from tests.cost.growth import Shape
from tests.cost.inputs.repeated import lines
from tests.support.sops import MOMENT, fresh

SEALED = "ENC[AES256_GCM,data:AAAA,iv:AAAA,tag:AAAA,type:str]"


@cache
def identity() -> tuple[str, str]:
    """An identity of age, and its recipient."""
    return fresh()


def _sealed(text: str) -> bytes:
    """``text``, encrypted as `reconciler secret encrypt` does it."""
    return encrypt_secrets(text.encode(), [identity()[1]], EncryptionRules(), MOMENT)


def _decode(raw: bytes) -> None:
    decode_manifests(raw, ManifestContext("acme", secret_key=b"k" * 32, secrets="encrypted-only"))


def _decode_with_key(raw: bytes) -> None:
    ring = Keyring((identity()[0],), required=True)
    decode_manifests(raw, ManifestContext("acme", secret_key=b"k" * 32, keyring=ring, secrets="encrypted-only"))


def _decrypt(raw: bytes) -> None:
    decrypt_file(raw, Keyring((identity()[0],), required=True))


HEAD = "kind: secret\nname: s\ntype: dictionary\ndata:\n"
METADATA = "\nsops: {lastmodified: '2026-01-02T03:04:05Z', mac: ''}\n"

ENCRYPTED: dict[str, Shape] = {
    "locked values": Shape(
        lambda count: f"{HEAD}{lines(count, f'  kN: {SEALED!r}')}{METADATA}".encode(), _decode, 6_000
    ),
    "plain values": Shape(lambda count: f"{HEAD}{lines(count, '  kN: text')}".encode(), _decode, 6_000),
    "locked and plain values": Shape(
        lambda count: f"{HEAD}{lines(count, f'  kN: {SEALED!r}')}\n{lines(count, '  pN: text')}{METADATA}".encode(),
        _decode,
        6_000,
    ),
    "locked documents": Shape(
        lambda count: "---\n".join(
            f"{HEAD}  k: {SEALED!r}{METADATA}".replace("name: s", f"name: s{n}") for n in range(count)
        ).encode(),
        _decode,
        100,
    ),
    "recipients": Shape(
        lambda count: (
            f"{HEAD}  k: {SEALED!r}\nsops:\n  lastmodified: '2026-01-02T03:04:05Z'\n  mac: ''\n  age:\n"
            f"{lines(count, '    - {recipient: age1N, enc: text}')}\n".encode()
        ),
        _decode,
    ),
    "values in one another": Shape(
        lambda count: f"kind: gvc\nname: g\nx:\n{lines(count, f'  - [{SEALED!r}]')}{METADATA}".encode(), _decode
    ),
    "values that a key opens": Shape(
        lambda count: _sealed(f"{HEAD}{lines(count, '  kN: text')}\n"), _decode_with_key, 200
    ),
    "documents that a key opens": Shape(
        lambda count: _sealed(
            "---\n".join(f"{HEAD}  k: text\n".replace("name: s", f"name: s{n}") for n in range(count))
        ),
        _decode_with_key,
        50,
    ),
    "values that are shown": Shape(lambda count: _sealed(f"{HEAD}{lines(count, '  kN: text')}\n"), _decrypt, 200),
    "comments that are shown": Shape(
        lambda count: _sealed(f"{HEAD}{lines(count, '  # comment N')}\n  k: text\n"), _decrypt, 200
    ),
    "values that are encrypted": Shape(
        lambda count: f"{HEAD}{lines(count, '  kN: text')}\n", lambda text: _sealed(text), 200
    ),
}
