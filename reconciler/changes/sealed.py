"""Secrets in the files of a source: opened for a change, and encrypted again before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from reconciler.changes.text import read_documents, remove_document, split_documents
from reconciler.documents.encoding import is_json, is_json_list
from reconciler.documents.reader import parse_documents
from reconciler.errors import EncryptionError, RefusedError
from reconciler.manifests.encrypted import ENCRYPTED_ONLY, is_plain_text
from reconciler.model.key import Key
from reconciler.sops.creation_rules import FILE, Creation
from reconciler.sops.decrypt import encrypted_in
from reconciler.sops.encrypt import decrypt_file, encrypt_secrets, reencrypt_secrets
from reconciler.sops.keys import Keyring
from reconciler.sops.layout import layout_of
from reconciler.sops.metadata import FIELD
from reconciler.sops.result import DecryptedDocument


class Sealing(NamedTuple):
    """What encrypts secrets of a source.

    ``keyring`` decrypts existing ones, ``policy`` is that of the settings, ``rule`` finds the creation rule for a path,
    and ``moment`` is now, as RFC 3339.
    """

    keyring: Keyring
    policy: str
    rule: Callable[[str], Creation | None]
    moment: str


class OpenedFile(NamedTuple):
    """A text with the document to change in plain text, which is never written; ``close`` turns it into a whole file.

    ``close`` raises RefusedError.
    """

    text: str
    close: Callable[[str], str | None]


def is_encrypted(document: Any) -> bool:
    """Whether a document, as it is read, is encrypted."""
    return isinstance(document, dict) and FIELD in document


def open_file(text: str, index: int, key: Key, sealing: Sealing) -> OpenedFile:
    """Open ``text`` to change its encrypted document ``index``, which declares ``key``. Raises RefusedError."""
    if is_json(text.encode().lstrip()):
        raise RefusedError(f"{key} is encrypted in JSON: change it in Git with sops, or make its file YAML")
    parts = split_documents(text)
    alone = _count_sharing(text, index) == 1
    try:
        opened = decrypt_file((parts[index] if alone else text).encode(), sealing.keyring)
    except EncryptionError as error:
        raise RefusedError(
            f"{key} is encrypted in Git, and this host cannot open it: {error}; else change it in Git with "
            "`reconciler secret edit`"
        ) from None

    def close(changed: str) -> str | None:
        if not changed:
            return "".join(parts[:index] + parts[index + 1 :]) or None if alone else None
        try:
            sealed = reencrypt_secrets(opened, changed.encode(), sealing.moment).decode()
        except EncryptionError as error:
            raise RefusedError(f"{key} cannot be encrypted: {error}") from None
        return "".join([*parts[:index], sealed, *parts[index + 1 :]]) if alone else sealed

    return OpenedFile(opened.text.decode(), close)


def remove_encrypted(text: str, index: int, key: Key, sealing: Sealing) -> str | None:
    """``text`` without its encrypted document ``index``; None if no other is left. Raises RefusedError."""
    if _count_sharing(text, index) == 1:
        return remove_document(text, index) or None
    opened = open_file(text, index, key, sealing)
    return opened.close(remove_document(opened.text, index))


def seal_secret(text: str, key: Key, path: str, sealing: Sealing, *, is_new: bool) -> str:
    """``text`` with the secret ``key`` encrypted, where the settings or, for a new one, a creation rule want that.

    Raises RefusedError if it would be in plain text against the settings.
    """
    documents = read_documents(text)
    must = sealing.policy == ENCRYPTED_ONLY
    secret = next((value for value in documents if isinstance(value, dict) and value.get("name") == key.name), {})
    if not secret and must:
        faults = [fault.message for fault in parse_documents(text.encode()).faults]
        raise RefusedError(f"{key} cannot be written: {faults[0] if faults else 'its name is no text'}")
    if is_encrypted(secret) or not is_plain_text(secret, None) or not (must or is_new):
        return text
    creation = sealing.rule(path)
    if creation is None and not must:
        return text
    if creation is None:
        raise RefusedError(
            f"{key}: the settings accept encrypted secrets only, and no creation rule says for whom {path} is "
            f"encrypted: add one to {FILE} in the repository, or write the file with `reconciler secret encrypt`"
        )
    if len(documents) > 1:
        raise RefusedError(f"{key}: {path} has other documents, and SOPS encrypts whole files: put it into its own")
    return _encrypt_text(text, key, creation, sealing.moment)


def check_sealed(text: str, key: Key, sealing: Sealing) -> None:
    """Raise RefusedError if ``text`` has values of the secret ``key`` in plain text, and the settings refuse that."""
    if sealing.policy != ENCRYPTED_ONLY:
        return
    raw = text.encode()
    as_json = is_json_list(raw)
    for document in parse_documents(raw, is_json=as_json).documents:
        value = document.value
        if isinstance(value, dict) and (value.get("kind"), value.get("name")) == (key.kind, key.name):
            encrypted = encrypted_in(layout_of(raw, {document.index}, is_json=as_json)[document.index])
            if is_plain_text(value, DecryptedDocument(value, encrypted)):
                raise RefusedError(
                    f"{key}: the settings accept encrypted secrets only, and the rule that its file is encrypted by "
                    f"leaves values as they are: encrypt all of `data`, as a rule of {FILE} does by default"
                )


def _encrypt_text(text: str, key: Key, creation: Creation, moment: str) -> str:
    try:
        return encrypt_secrets(text.encode(), creation.recipients, creation.manner, moment).decode()
    except EncryptionError as error:
        raise RefusedError(f"{key} cannot be encrypted: {error}") from None


def _count_sharing(text: str, index: int) -> int:
    """How many documents of ``text`` were encrypted together with document ``index``."""
    documents = read_documents(text)
    fields = [value[FIELD] if is_encrypted(value) else None for value in documents]
    macs = [field.get("mac") if isinstance(field, dict) else None for field in fields]
    return macs.count(macs[index])
