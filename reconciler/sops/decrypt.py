"""Decrypts the documents of one file in memory, and reports their faults."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from reconciler.documents.types import TEXT_FIELDS, Document, Reading
from reconciler.errors import EncryptionError
from reconciler.model.finding import Pointer
from reconciler.sops.cipher import (
    DecryptionFailed,
    Value,
    additional_data,
    as_bytes,
    decrypt_value,
    parse_encrypted_value,
)
from reconciler.sops.keys import Keyring, NoUsableKey, data_key
from reconciler.sops.layout import MOST_SCALARS, DocumentLayout, ScalarSpan, layout_of, mac_value
from reconciler.sops.metadata import FIELD, MetadataError, SopsMetadata, metadata_of, path_of
from reconciler.sops.result import KEY_WRONG, LOCKED, MAC_BROKEN, METADATA, DecryptedDocument, SopsProblem

ONLY_ENCRYPTED = bytes.fromhex("8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69")
"""The beginning of a MAC that covers only encrypted values: the SHA-256 of ``sops``."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FREE = "data"
"""The field whose texts may contain control characters."""
_RESTORE = "restore the file from Git, and change it with reconciler secret edit"


class EncryptedLeaf(NamedTuple):
    """A value: its document, its place in the text, and itself."""

    document: Document
    span: ScalarSpan
    value: Any


class EncryptedGroup(msgspec.Struct):
    """The documents of a file that were encrypted together: one MAC covers all of them."""

    metadata: SopsMetadata
    documents: list[tuple[Document, DocumentLayout]] = []

    def leaves(self) -> Iterator[EncryptedLeaf]:
        """Every value as written, in the order of the file, except those in ``sops``."""
        for document, part in self.documents:
            for leaf in part.leaves:
                if leaf.pointer[:1] != (FIELD,):
                    yield EncryptedLeaf(document, leaf, _get_value_at(document.value, leaf.pointer))


class Revealed(NamedTuple):
    """The decrypted values of a group, and their IVs, by document index and pointer."""

    values: dict[tuple[int, Pointer], Value]
    ivs: dict[tuple[int, Pointer], bytes]


class TamperedValue(EncryptionError):
    """The value at ``at`` of the document ``index`` is not the one that was encrypted there."""

    def __init__(self, index: int, at: Pointer, message: str) -> None:
        super().__init__(message)
        self.index = index
        self.at = at


def open_all(raw: bytes, reading: Reading, keyring: Keyring) -> dict[int, DecryptedDocument]:
    """The encrypted documents of a file by index; no content of ``raw`` makes it raise.

    The MAC is verified only if all documents of the file could be read.
    """
    sealed = [
        document for document in reading.documents if isinstance(document.value, dict) and FIELD in document.value
    ]
    written = layout_of(raw, {document.index for document in sealed}, is_json=reading.is_json)
    decrypted_documents: dict[int, DecryptedDocument] = {}
    groups: dict[str, EncryptedGroup] = {}
    for document in sealed:
        try:
            metadata = metadata_of(document.value[FIELD])
            metadata.covers()
            part = _written_plainly(written.get(document.index))
        except MetadataError as error:
            decrypted_documents[document.index] = _make_refused_document(document, error)
            continue
        group = groups.setdefault(metadata.mac, EncryptedGroup(metadata))
        group.documents.append((document, part))
    for group in groups.values():
        decrypted_documents |= _open_group(group, keyring, whole=not reading.faults)
    return decrypted_documents


def decrypt_group(group: EncryptedGroup, key: bytes) -> Revealed:
    """Decrypt every value of ``group``. Raises TamperedValue."""
    revealed = Revealed({}, {})
    covers, by_form = group.metadata.covers(), group.metadata.by_comments()
    for document, leaf, value in group.leaves():
        sealed = parse_encrypted_value(value) if isinstance(value, str) else None
        path = path_of(leaf.pointer)
        encrypted = sealed is not None if by_form else covers(path)
        if not encrypted or value in ("", None):
            continue
        if sealed is None:
            message = "this value is not encrypted, but its document is"
            raise TamperedValue(document.index, leaf.pointer, message)
        try:
            plaintext = decrypt_value(sealed, key, additional_data(path))
        except DecryptionFailed:
            message = "this value was changed or moved since it was encrypted, or copied from another document"
            raise TamperedValue(document.index, leaf.pointer, message) from None
        if path[0] != _FREE and isinstance(plaintext, str) and _CONTROL.search(plaintext):
            message = "this value has a control character, which only the data of a secret may have"
            raise TamperedValue(document.index, leaf.pointer, message)
        revealed.values[document.index, leaf.pointer] = plaintext
        revealed.ivs[document.index, leaf.pointer] = sealed.iv
    return revealed


def compute_mac(group: EncryptedGroup, revealed: Revealed) -> str:
    """The MAC over the values of ``group``, 128 hexadecimal digits."""
    only = group.metadata.mac_only_encrypted
    covers = group.metadata.covers()
    digest = hashlib.sha512(ONLY_ENCRYPTED if only else b"")
    for document, leaf, value in group.leaves():
        at = (document.index, leaf.pointer)
        plain = revealed.values[at] if at in revealed.values else mac_value(leaf, value)
        if plain is not None and (not only or at in revealed.values or covers(path_of(leaf.pointer))):
            digest.update(as_bytes(plain))
    return digest.hexdigest().upper()


def mac_matches(group: EncryptedGroup, revealed: Revealed, key: bytes) -> bool:
    """Whether the MAC shows that no value was changed, added, moved or removed."""
    sealed = parse_encrypted_value(group.metadata.mac)
    if sealed is None:
        return False
    try:
        written = decrypt_value(sealed, key, group.metadata.moment.encode())
    except DecryptionFailed:
        return False
    return hmac.compare_digest(str(written).encode(), compute_mac(group, revealed).encode())


def encrypted_in(part: DocumentLayout) -> frozenset[Pointer]:
    """Pointers of all values of a document that have the form of an encrypted value."""
    return frozenset(
        leaf.pointer
        for leaf in part.leaves
        if leaf.pointer[:1] != (FIELD,) and parse_encrypted_value(leaf.text) is not None
    )


def with_values(document: Document, revealed: Revealed) -> dict[str, Any]:
    """A document without ``sops``, with its decrypted values in place."""
    whole: dict[str, Any] = _copy_value({name: value for name, value in document.value.items() if name != FIELD})
    for (index, pointer), value in revealed.values.items():
        if index == document.index:
            _get_value_at(whole, pointer[:-1])[pointer[-1]] = as_read(pointer, value)
    return whole


def _written_plainly(part: DocumentLayout | None) -> DocumentLayout:
    """Return ``part``; raises MetadataError if SOPS does not write such documents."""
    if part is None:
        raise MetadataError("", f"encrypted documents of a file have more than {MOST_SCALARS:,} keys and values")
    if part.shared:
        raise MetadataError("", "an encrypted document has no aliases or merge keys: SOPS does not support them")
    return part


def _open_group(group: EncryptedGroup, keyring: Keyring, *, whole: bool) -> dict[int, DecryptedDocument]:
    try:
        key = data_key(group.metadata, keyring)
    except NoUsableKey as error:
        trouble = SopsProblem(KEY_WRONG if keyring.required else LOCKED, (FIELD,), str(error), error.suggestion)
        return {document.index: _make_locked_document(document, part, trouble) for document, part in group.documents}
    try:
        revealed = decrypt_group(group, key)
    except TamperedValue as error:
        return _make_broken_documents(group, error.index, SopsProblem(MAC_BROKEN, error.at, str(error), _RESTORE))
    if whole and not mac_matches(group, revealed, key):
        message = "since this was encrypted, a plain value was changed, or a value was added, moved or removed"
        first = group.documents[0][0].index
        return _make_broken_documents(group, first, SopsProblem(MAC_BROKEN, (FIELD, "mac"), message, _RESTORE))
    return {
        document.index: DecryptedDocument(with_values(document, revealed), encrypted_in(part))
        for document, part in group.documents
    }


def _make_broken_documents(group: EncryptedGroup, index: int, trouble: SopsProblem) -> dict[int, DecryptedDocument]:
    """All documents of ``group``, still encrypted; the one with ``index`` has ``trouble``."""
    return {
        document.index: _make_locked_document(document, part, trouble if document.index == index else None)
        for document, part in group.documents
    }


def _make_locked_document(document: Document, part: DocumentLayout, trouble: SopsProblem | None) -> DecryptedDocument:
    value = {name: value for name, value in document.value.items() if name != FIELD}
    encrypted = encrypted_in(part)
    return DecryptedDocument(value, encrypted, True, (trouble,) if trouble else ())


def _make_refused_document(document: Document, error: MetadataError) -> DecryptedDocument:
    value = {name: value for name, value in document.value.items() if name != FIELD}
    at: Sequence[str] = (FIELD, error.field) if error.field else (FIELD,)
    trouble = SopsProblem(METADATA, tuple(at), str(error), "let sops or reconciler secret write it")
    return DecryptedDocument(value, locked=True, troubles=(trouble,))


def _get_value_at(holder: Any, pointer: Pointer) -> Any:
    for step in pointer:
        holder = holder[step]
    return holder


def as_read(pointer: Pointer, value: Value) -> Value:
    """``value`` as the reader returns it: as text in fields that contain only text."""
    if isinstance(value, str) or pointer[0] not in TEXT_FIELDS:
        return value
    text = as_bytes(value).decode()
    return text.lower() if isinstance(value, bool) else text


def _copy_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy_value(member) for name, member in value.items()}
    return [_copy_value(item) for item in value] if isinstance(value, list) else value
