"""Writes encrypted files: encrypts, decrypts for an edit, encrypts again, rotates keys; the layout stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from reconciler.documents.encoding import fix_json_surrogates, is_json
from reconciler.documents.reader import parse_documents
from reconciler.documents.types import Document, Reading
from reconciler.documents.writer import after_key, render_document
from reconciler.errors import EncryptionError
from reconciler.sops.cipher import (
    COMMENT,
    DecryptionFailed,
    Value,
    additional_data,
    as_bytes,
    decrypt_value,
    encrypt_value,
    parse_encrypted_value,
)
from reconciler.sops.comments import SopsComment, list_comments
from reconciler.sops.decrypt import (
    EncryptedGroup,
    Revealed,
    TamperedValue,
    as_read,
    compute_mac,
    decrypt_group,
    mac_matches,
    with_values,
)
from reconciler.sops.keys import Keyring, NoUsableKey, data_key, new_key, wrap_key
from reconciler.sops.layout import MOST_SCALARS, DocumentLayout, Edit, ScalarSpan, layout_of
from reconciler.sops.metadata import FIELD, MetadataError, SopsMetadata, metadata_of, path_of

_BOM = b"\xef\xbb\xbf"


class SecretFileError(EncryptionError):
    """A file cannot be encrypted, decrypted or changed; the message gives the reason and no content."""


class EncryptionRules(msgspec.Struct, frozen=True):
    """The values to encrypt: a ``rule`` of SOPS and its pattern; by default all below ``data``."""

    rule: str = "encrypted_regex"
    pattern: str = "^data$"
    mac_only_encrypted: bool = False


class IvCache(msgspec.Struct):
    """The IVs by place, type and value, so that the text of an unchanged value stays the same."""

    ivs: dict[tuple[bytes, str, bytes], bytes] = {}

    def note(self, bound: bytes, kind: str, value: Value, iv: bytes) -> None:
        """Remember the ``iv`` of a value."""
        self.ivs[bound, kind, as_bytes(value)] = iv

    def seal(self, bound: bytes, key: bytes, value: Value, kind: str = "") -> str:
        """Encrypt ``value``, with its former IV if it has one."""
        type_name = kind or type(value).__name__
        return encrypt_value(value, key, bound, self.ivs.get((bound, type_name, as_bytes(value)), b""), kind)


class DecryptedFile(msgspec.Struct, frozen=True):
    """An encrypted file as plain text, with the means to encrypt it again. It must never be written to disk."""

    text: bytes
    metadata: SopsMetadata
    key: bytes
    stash: IvCache


def encrypt_secrets(raw: bytes, recipients: Sequence[str], manner: EncryptionRules, moment: str) -> bytes:
    """Encrypt a file of plain secrets for ``recipients``; ``moment`` is the time in UTC as RFC 3339.

    Raises SecretFileError, and KeyringError for an invalid recipient.
    """
    key = new_key()
    metadata = SopsMetadata(
        wrap_key(key, recipients), moment, "", manner.rule, manner.pattern, manner.mac_only_encrypted
    )
    return _seal_file(raw, metadata, key, IvCache())


def decrypt_file(raw: bytes, keyring: Keyring) -> DecryptedFile:
    """Decrypt a file in YAML, to change it. Raises SecretFileError."""
    raw = fix_json_surrogates(raw.removeprefix(_BOM))
    if is_json(raw.lstrip()):
        raise SecretFileError("it is JSON: change it with sops")
    group = _parse_encrypted_group(raw)
    try:
        key = data_key(group.metadata, keyring)
        revealed = decrypt_group(group, key)
    except NoUsableKey as error:
        raise SecretFileError(f"{error}; {error.suggestion}") from None
    except TamperedValue as error:
        raise SecretFileError(f"the value at {'.'.join(map(str, error.at))}: {error}") from None
    if not mac_matches(group, revealed, key):
        raise SecretFileError(
            "its MAC does not match: since it was encrypted, values were changed, moved, added or removed"
        )
    stash = IvCache()
    for at, value in revealed.values.items():
        stash.note(additional_data(path_of(at[1])), type(value).__name__, value, revealed.ivs[at])
    text = raw.decode()
    edits = [
        *_shown_values(group, revealed),
        *_shown_comments(text, group, key, stash),
        *_without_metadata(text, group),
    ]
    shown = _splice_text(text, edits).encode()
    if [document.value for document in parse_documents(shown).documents] != [
        with_values(document, revealed) for document, _ in group.documents
    ]:
        raise SecretFileError("its layout cannot be shown; decrypt it with sops")
    return DecryptedFile(shown, group.metadata, key, stash)


def reencrypt_secrets(disclosed: DecryptedFile, edited: bytes, moment: str) -> bytes:
    """Encrypt the ``edited`` text of ``disclosed`` with the same key. Raises SecretFileError."""
    metadata = msgspec.structs.replace(disclosed.metadata, lastmodified=moment)
    return _seal_file(edited, metadata, disclosed.key, disclosed.stash)


def rotate_key(raw: bytes, keyring: Keyring, add: Iterable[str], remove: Iterable[str], moment: str) -> bytes:
    """Encrypt a file with a new data key for its recipients, plus those to ``add``, minus those to ``remove``.

    Raises SecretFileError, and KeyringError for an invalid recipient.
    """
    disclosed = decrypt_file(raw, keyring)
    dropped = list(remove)
    had = [key.recipient for key in disclosed.metadata.keys]
    unknown = [text for text in dropped if text not in had]
    if unknown:
        raise SecretFileError(f"it is not encrypted for {unknown[0]}; it is for {', '.join(had)}")
    recipients = [fromkey for fromkey in dict.fromkeys([*had, *add]) if fromkey not in dropped]
    if not recipients:
        raise SecretFileError("without a recipient it cannot be decrypted")
    key = new_key()
    metadata = msgspec.structs.replace(disclosed.metadata, keys=wrap_key(key, recipients), lastmodified=moment)
    return _seal_file(disclosed.text, metadata, key, IvCache())


def _seal_file(raw: bytes, metadata: SopsMetadata, key: bytes, stash: IvCache) -> bytes:
    raw = fix_json_surrogates(raw.removeprefix(_BOM))
    reading, layouts = _parse_plain_file(raw)
    text = raw.decode()
    try:
        covers = metadata.covers()
    except MetadataError as error:
        raise SecretFileError(str(error)) from None
    group, revealed = EncryptedGroup(metadata), Revealed({}, {})
    group.documents.extend((document, layouts[document.index]) for document in reading.documents)
    edits: list[Edit] = []
    for document, leaf, value in group.leaves():
        path = path_of(leaf.pointer)
        if covers(path) and value not in ("", None):
            revealed.values[document.index, leaf.pointer] = value
            edits.append(_replace_value(text, leaf, stash.seal(additional_data(path), key, value)))
    if not edits:
        raise SecretFileError(f"it has nothing to encrypt: no value matches {metadata.rule} {metadata.pattern}")
    for comment in _all_comments(text, group):
        path = path_of(comment.holder)
        if covers(path) and comment.text and parse_encrypted_value(comment.text) is None:
            sealed = stash.seal(additional_data(path), key, comment.text, COMMENT)
            edits.append(Edit(comment.start, comment.end, f"#{sealed}"))
    mac = encrypt_value(compute_mac(group, revealed), key, metadata.moment.encode())
    block = render_document(msgspec.structs.replace(metadata, mac=mac).to_mapping())
    edits += [_append_metadata(text, part, block) for _, part in group.documents]
    return _verify_decrypted_values(_splice_text(text, edits).encode(), reading, key)


def _parse_plain_file(raw: bytes) -> tuple[Reading, dict[int, DocumentLayout]]:
    """A file that can be encrypted. Raises SecretFileError."""
    reading = parse_documents(raw)
    if reading.faults:
        fault = reading.faults[0]
        raise SecretFileError(f"line {fault.line}: {fault.message}")
    layouts = layout_of(raw, range(len(reading.documents)))
    if not reading.documents:
        raise SecretFileError("it has no document")
    for document in reading.documents:
        part = _get_document_layout(layouts, document)
        if is_json(raw.lstrip()):
            raise SecretFileError("it is JSON: encrypt it with sops")
        if not isinstance(document.value, dict) or not part.block:
            raise SecretFileError(f"line {document.line}: only a mapping without braces can be encrypted")
        if FIELD in document.value:
            raise SecretFileError("it is already encrypted: change it with edit, its key with rotate")
        if part.shared:
            raise SecretFileError(f"line {document.line}: SOPS has no aliases and merge keys; write the values out")
    return reading, layouts


def _parse_encrypted_group(raw: bytes) -> EncryptedGroup:
    """The documents of an encrypted file, which must have been encrypted together. Raises SecretFileError."""
    reading = parse_documents(raw)
    if reading.faults:
        fault = reading.faults[0]
        raise SecretFileError(f"line {fault.line}: {fault.message}")
    if not any(isinstance(document.value, dict) and FIELD in document.value for document in reading.documents):
        raise SecretFileError("it is not encrypted")
    layouts = layout_of(raw, range(len(reading.documents)))
    groups: dict[str, EncryptedGroup] = {}
    for document in reading.documents:
        try:
            metadata = metadata_of(document.value.get(FIELD) if isinstance(document.value, dict) else None)
            metadata.covers()
        except MetadataError as error:
            raise SecretFileError(f"line {document.line}: {error}") from None
        if _get_document_layout(layouts, document).shared:
            raise SecretFileError(f"line {document.line}: SOPS has no aliases and merge keys; write the values out")
        group = groups.setdefault(metadata.mac, EncryptedGroup(metadata))
        group.documents.append((document, layouts[document.index]))
    if len(groups) > 1:
        raise SecretFileError("its documents were encrypted separately; put each into a file of its own")
    only = next(iter(groups.values()))
    if only.metadata.others or only.metadata.groups > 1 or only.metadata.by_comments():
        raise SecretFileError("it is encrypted with a feature that only sops has")
    return only


def _get_document_layout(layouts: dict[int, DocumentLayout], document: Document) -> DocumentLayout:
    if document.index not in layouts:
        raise SecretFileError(
            f"line {document.line}: its file has more than {MOST_SCALARS:,} keys and values; split it"
        )
    return layouts[document.index]


def _replace_value(text: str, leaf: ScalarSpan, sealed: str) -> Edit:
    """Replace the value of ``leaf``; the line breaks after it stay, and in brackets it gets quotes."""
    old = text[leaf.start : leaf.end]
    ending = old[len(old.rstrip("\r\n")) :]
    return Edit(leaf.start, leaf.end, (f'"{sealed}"' if leaf.flow else sealed) + ending)


def _shown_values(group: EncryptedGroup, revealed: Revealed) -> Iterator[Edit]:
    for document, leaf, _ in group.leaves():
        at = (document.index, leaf.pointer)
        if at in revealed.values:
            value = as_read(leaf.pointer, revealed.values[at])
            # A block that keeps its trailing blank lines would also take those that follow in the file.
            in_line = leaf.flow or (isinstance(value, str) and value.endswith("\n\n"))
            yield Edit(leaf.start, leaf.end, after_key(value, "" if in_line else " " * (leaf.column + 2)))


def _shown_comments(text: str, group: EncryptedGroup, key: bytes, stash: IvCache) -> Iterator[Edit]:
    """The decrypted comments; others stay unchanged, as with SOPS."""
    for comment in _all_comments(text, group):
        sealed = parse_encrypted_value(comment.text)
        if sealed is None:
            continue
        bound = additional_data(path_of(comment.holder))
        try:
            shown = decrypt_value(sealed, key, bound)
        except DecryptionFailed:
            continue
        stash.note(bound, COMMENT, shown, sealed.iv)
        yield Edit(comment.start, comment.end, f"#{shown}")


def _all_comments(text: str, group: EncryptedGroup) -> Iterator[SopsComment]:
    begin = 0
    for _, part in group.documents:
        yield from list_comments(text, part, begin)
        begin = part.end


def _without_metadata(text: str, group: EncryptedGroup) -> Iterator[Edit]:
    for _, part in group.documents:
        begin = part.fields[FIELD]
        end = max(leaf.end for leaf in part.leaves if leaf.pointer[0] == FIELD)
        if not text[:end].endswith("\n"):
            end = text.find("\n", end) + 1 or len(text)
        yield Edit(begin, end, "")


def _append_metadata(text: str, part: DocumentLayout, block: str) -> Edit:
    """The metadata, at the end of a document."""
    return Edit(part.end, part.end, block if text[: part.end].endswith("\n") else f"\n{block}")


def _splice_text(text: str, edits: Iterable[Edit]) -> str:
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def _verify_decrypted_values(raw: bytes, before: Reading, key: bytes) -> bytes:
    """Return ``raw`` if it decrypts to exactly the values ``before``. Raises SecretFileError."""
    group = _parse_encrypted_group(raw)
    try:
        revealed = decrypt_group(group, key)
    except TamperedValue:
        revealed = Revealed({}, {})
    after = [with_values(document, revealed) for document, _ in group.documents]
    if after != [document.value for document in before.documents] or not mac_matches(group, revealed, key):
        raise SecretFileError("its layout cannot be encrypted in place; write every value on a line of its own")
    return raw
