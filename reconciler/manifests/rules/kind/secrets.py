"""The data of secrets. No message of these rules quotes it."""

from __future__ import annotations

import binascii
from collections.abc import Iterator

import msgspec

from reconciler.manifests.rules.kind.pem import fault_in, is_pair
from reconciler.manifests.rules.registry import register_rule
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.secret import ENCODED, TEXTS, Secret

_DATA: Pointer = ("data",)
_TYPE: tuple[Pointer, ...] = (("type",),)

_PEM = {
    "tls": (("cert", "CERTIFICATE"), ("key", "PRIVATE KEY"), ("chain", "CERTIFICATE")),
    "keypair": (("secretKey", "PRIVATE KEY"), ("publicKey", "PUBLIC KEY")),
}
"""Type → its keys with PEM texts, each with the end of the required label."""

_PAIRS = {"tls": ("cert", "key", "certificate"), "keypair": ("publicKey", "secretKey", "public key")}
"""Type → its two keys with PEM texts that belong together, and what the first one is."""

_OPTIONAL = frozenset({"chain", "publicKey"})
"""Keys that may be empty."""


@register_rule("secret-pem", "docs/platform/fields.md#secret", Kind.SECRET)
def check_pem_texts(secret: Secret) -> Iterator[Flaw]:
    """Certificates and keys of tls and keypair secrets are PEM texts.

    Programs that mount the secret read PEM: lines from -----BEGIN to -----END. A server that starts with an incomplete
    text fails, and so does one with the key of another certificate.
    """
    data = secret.data
    if not isinstance(data, dict):
        return
    is_sound = True
    for key, ending in _PEM.get(secret.type, ()):
        text = data.get(key)
        fault = fault_in(text, ending) if isinstance(text, str) and (text or key not in _OPTIONAL) else ""
        if fault:
            message = f"this is not a {ending} in PEM form: {fault}"
            hint = f"write `{key}: |` and below it the lines from -----BEGIN to -----END"
            yield Flaw(("data", key), message, hint, _TYPE)
            is_sound = False
    public, private, what = _PAIRS.get(secret.type, ("", "", ""))
    texts = data.get(public), data.get(private)
    if is_sound and isinstance(texts[0], str) and isinstance(texts[1], str) and not is_pair(texts[0], texts[1]):
        message = f"this key belongs to another {what} than `{public}`"
        yield Flaw(("data", private), message, f"write the {what} and the key of one pair", (("data", public), *_TYPE))


@register_rule("secret-json", "docs/platform/fields.md#secret", Kind.SECRET)
def check_json_text(secret: Secret) -> Iterator[Flaw]:
    """The data of docker, gcp and azure-sdk secrets is the text of one JSON object, that of docker with "auths".

    Containers get it as a file. With an invalid one, a registry or a cloud library refuses every pull and every call.
    """
    text = secret.data
    if secret.type not in TEXTS or not isinstance(text, str):
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        yield Flaw(
            _DATA, "this is not JSON", "write the whole file as one text: `data: |` and the JSON below it", _TYPE
        )
        return
    if not isinstance(value, dict):
        yield Flaw(_DATA, "this is JSON, but not an object", "write the whole file, which begins with {", _TYPE)
    elif secret.type == "docker" and not isinstance(value.get("auths"), dict):
        yield Flaw(
            _DATA,
            'this has no "auths" with registries and their credentials',
            'write {"auths": {"REGISTRY": {"auth": "..."}}}',
            _TYPE,
        )


@register_rule("secret-base64", "docs/platform/fields.md#secret", Kind.SECRET)
def check_base64_text(secret: Secret) -> Iterator[Flaw]:
    """With encoding base64, the payload of an opaque and the password of a userpass secret are base64.

    The platform decodes the text when it is mounted or read. An invalid text never reaches the container.
    """
    data = secret.data
    if not isinstance(data, dict) or data.get("encoding") != "base64":
        return
    key = ENCODED.get(secret.type, "")
    text = data.get(key)
    if isinstance(text, str) and not _is_base64(text):
        yield Flaw(
            ("data", key),
            "this is not base64",
            "encode it, or write encoding: plain",
            (("data", "encoding"), ("type",)),
        )


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        return False
    return True
