"""Encrypted manifests: the readable part of a locked one, and the values of a secret that should be encrypted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from reconciler.model.finding import Pointer, Severity
from reconciler.model.key import KINDS, Key, Kind
from reconciler.model.kinds.secret import TEXTS, host_places
from reconciler.model.resource import GVC_PLACEHOLDER
from reconciler.sops.metadata import FIELD
from reconciler.sops.result import DecryptedDocument, SopsProblem
from reconciler.sops.rules import ENCRYPTED_KIND, PLAIN_TEXT

if TYPE_CHECKING:
    from reconciler.documents.schema.dialect import SchemaError

UNNAMED_SECRET = f"{Kind.SECRET}/"
"""The key of a secret whose name cannot be read."""

ENCRYPTED_ONLY = "encrypted-only"
"""The policy that refuses secrets in plain text in Git."""

_DATA: Pointer = ("data",)
_PUBLIC: dict[str, Collection[str]] = {
    "opaque": {"encoding"},
    "userpass": {"encoding", "username"},
    "tls": {"cert", "chain"},
    "keypair": {"publicKey"},
    "aws": {"accessKey", "roleArn", "externalId"},
    "ecr": {"accessKey", "roleArn", "externalId", "repos"},
    "azure-connector": {"url"},
    "nats-account": {"accountId"},
}
"""Type → the keys whose values are not secret."""


def hidden_in(opened: DecryptedDocument | None) -> Collection[Pointer]:
    """Pointers of the locked values of a document."""
    return sorted(opened.encrypted, key=str) if opened is not None and opened.locked else ()


def select_visible_errors(breaches: list[SchemaError], hidden: Collection[Pointer]) -> list[SchemaError]:
    """The ``breaches`` that do not depend on a locked value."""
    return [breach for breach in breaches if breach.path not in hidden] if hidden else breaches


def is_readable(opened: DecryptedDocument) -> bool:
    """Whether a locked document shows its kind, name and type."""
    return not any((field,) in opened.encrypted for field in ("kind", "name", "gvc", "type"))


def known_name(opened: DecryptedDocument) -> str:
    """The probable key of a document that could not be decrypted; it is a secret if its kind is hidden."""
    kind = opened.value.get("kind")
    if ("kind",) in opened.encrypted:
        kind = Kind.SECRET
    if not isinstance(kind, str) or kind not in KINDS:
        return ""
    name, scoped = opened.value.get("name"), opened.value.get("gvc", "")
    if ("name",) in opened.encrypted or not isinstance(name, str):
        return f"{kind}/"
    return str(Key(KINDS[kind], scoped if isinstance(scoped, str) else GVC_PLACEHOLDER, name))


def encryption_findings(
    kind: Kind, value: dict[str, Any], opened: DecryptedDocument | None, policy: str
) -> Iterator[tuple[SopsProblem, Severity]]:
    """Faults: encrypted values outside of secrets, and, according to ``policy``, plain values in secrets."""
    if kind is not Kind.SECRET:
        for at in sorted(opened.encrypted, key=str)[:1] if opened is not None else ():
            message = f"a {kind} has an encrypted value"
            yield (
                SopsProblem(ENCRYPTED_KIND, at, message, "write it in plain text, or put it into a secret"),
                Severity.ERROR,
            )
    elif policy and is_plain_text(value, opened):
        hint = "encrypt it: reconciler secret encrypt FILE --in-place"
        severity = Severity.ERROR if policy == ENCRYPTED_ONLY else Severity.WARNING
        yield SopsProblem(PLAIN_TEXT, _DATA, "a secret is in Git as plain text", hint), severity


def is_on_key(trouble: SopsProblem) -> bool:
    """Whether the place of ``trouble`` is the key: its value is a mapping, or not ours."""
    return trouble.at == _DATA or trouble.at[0] == FIELD


def is_plain_text(value: dict[str, Any], opened: DecryptedDocument | None) -> bool:
    """Whether the file of a secret has a secret value in plain text."""
    content, form = value.get("data"), str(value.get("type", ""))
    encrypted = opened.encrypted if opened is not None else frozenset()
    at_home = host_places(form, content)
    if not isinstance(content, dict) or form in TEXTS:
        return bool(content) and not encrypted and not at_home
    secret = (name for name, text in content.items() if text and name not in _PUBLIC.get(form, ()))
    # A key is encrypted if anything at or below it is: once for all keys, since both may be many.
    covered = {at[:2] for at in encrypted}
    return any(("data", name) not in at_home and ("data", name) not in covered for name in secret)
