"""Secret values for containers: selects the part of a secret that a reference names."""

from __future__ import annotations

import binascii

import msgspec

from reconciler.engines.protocol import SecretReader
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import ENCODED, Secret, SecretValue
from reconciler.model.platform import SECRET_URI
from reconciler.reasons import Reason

_encode = msgspec.json.Encoder(order="deterministic").encode


def parse_secret_uri(uri: str) -> tuple[Key, str]:
    """The key of the secret and KEY in ``platform://secret/NAME[.KEY]``; "" without KEY."""
    name, _, part = uri.removeprefix(SECRET_URI).partition(".")
    return Key(Kind.SECRET, "", name), part


def secret_keys(secret: SecretValue) -> list[str]:
    """The keys of a secret that a reference can name, sorted; empty for a plain text."""
    return Secret(type=secret.type, data=secret.content).key_names()


def secret_part(key: Key, secret: SecretValue, name: str) -> bytes:
    """The value under ``name``, decoded if the secret's encoding is base64 (docs/platform/fields.md#secret).

    Raises EngineError, reason SecretUnusable.
    """
    content = secret.content
    if not isinstance(content, dict) or name not in secret_keys(secret):
        raise make_secret_error(f"{key} has no key {name[:60]!r}")
    value = content[name]
    text = value if isinstance(value, str) else _encode(value).decode()
    if content.get("encoding") != "base64" or ENCODED.get(secret.type) != name:
        return text.encode()
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        raise make_secret_error(f"the {name} of {key} is not base64, although its encoding is") from None


def secret_whole(key: Key, secret: SecretValue) -> bytes:
    """The value of a reference to the whole secret: the payload, the plain text, or the data as JSON.

    Raises EngineError, reason SecretUnusable.
    """
    if secret.type == "opaque":
        return secret_part(key, secret, "payload")
    return as_json(secret)


def as_json(secret: SecretValue) -> bytes:
    """The JSON of a secret: its data, or its text, which already is JSON."""
    return secret.content.encode() if isinstance(secret.content, str) else _encode(secret.content)


def env_value(uri: str, reveal: SecretReader) -> str:
    """The value of a variable that refers to ``uri`` (docs/platform/workload.md#secrets-as-variables).

    Raises EngineError, reason SecretUnavailable or SecretUnusable.
    """
    key, part = parse_secret_uri(uri)
    secret = reveal(key)
    content = secret_part(key, secret, part) if part else secret_whole(key, secret)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise make_secret_error(f"{uri} is not text, so it cannot be a variable; mount it as a file")
    return text


def make_secret_error(message: str) -> EngineError:
    """The error for a secret that cannot be used as requested."""
    return EngineError(message, reason=Reason.SECRET_UNUSABLE, retry=False)
