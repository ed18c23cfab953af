"""The data of secrets. Nothing that these rules say quotes it."""

from __future__ import annotations

import binascii
from collections.abc import Iterator

import msgspec

from reconciler.manifests.rules.kind.pem import fault_in
from reconciler.manifests.rules.registry import rule
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.secret import ENCODED, TEXTS, Secret

_DATA: Pointer = ("data",)
_TYPE: tuple[Pointer, ...] = (("type",),)

_PEM = {
    "tls": (("cert", "CERTIFICATE"), ("key", "PRIVATE KEY"), ("chain", "CERTIFICATE")),
    "keypair": (("secretKey", "PRIVATE KEY"), ("publicKey", "PUBLIC KEY")),
}
"""Type to its keys that hold PEM, each with how the label of the block that is wanted ends."""

_OPTIONAL = frozenset({"chain", "publicKey"})
"""What may be empty."""


@rule("secret-pem", "docs/platform/fields.md#secret", Kind.SECRET)
def pem(secret: Secret) -> Iterator[Flaw]:
    """Certificates and keys of tls and keypair secrets are PEM texts.

    Whoever mounts the secret reads PEM: lines from -----BEGIN to -----END. A text that lost its line breaks or its end
    on the way is found only when a server starts with it and fails.
    """
    data = secret.data
    if not isinstance(data, dict):
        return
    for key, ending in _PEM.get(secret.type, ()):
        text = data.get(key)
        fault = fault_in(text, ending) if isinstance(text, str) and (text or key not in _OPTIONAL) else ""
        if fault:
            message = f"this is not a {ending} in PEM form: {fault}"
            hint = f"write `{key}: |` and below it the lines from -----BEGIN to -----END"
            yield Flaw(("data", key), message, hint, _TYPE)


@rule("secret-json", "docs/platform/fields.md#secret", Kind.SECRET)
def json(secret: Secret) -> Iterator[Flaw]:
    """The data of docker, gcp and azure-sdk secrets is the text of one JSON object, that of docker with "auths".

    It is handed on as a file. A registry or a cloud library that cannot read it refuses every pull and every call.
    """
    text = secret.data
    if secret.type not in TEXTS or not isinstance(text, str):
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        yield Flaw(_DATA, "this is not JSON", "give the whole file as one text: `data: |` and the JSON below it", _TYPE)
        return
    if not isinstance(value, dict):
        yield Flaw(_DATA, "this is JSON, but not an object", "give the whole file, which begins with {", _TYPE)
    elif secret.type == "docker" and not isinstance(value.get("auths"), dict):
        yield Flaw(_DATA, 'this has no "auths", in which registries and their credentials stand',
                   'write {"auths": {"REGISTRY": {"auth": "..."}}}', _TYPE)  # fmt: skip


@rule("secret-base64", "docs/platform/fields.md#secret", Kind.SECRET)
def base64(secret: Secret) -> Iterator[Flaw]:
    """With encoding base64, the payload of an opaque and the password of a userpass secret are base64.

    The text is decoded when it is mounted or read. What cannot be decoded never reaches the container.
    """
    data = secret.data
    if not isinstance(data, dict) or data.get("encoding") != "base64":
        return
    key = ENCODED.get(secret.type, "")
    text = data.get(key)
    if isinstance(text, str) and not _is_base64(text):
        yield Flaw(("data", key), "this is not base64", "encode it, or write encoding: plain",
                   (("data", "encoding"), ("type",)))  # fmt: skip


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        return False
    return True
