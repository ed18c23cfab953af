"""What a change of resources means for the files of a source: pure, from texts to texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

from reconciler.changes.requests import Document, DocumentText, ResourceEdit
from reconciler.changes.sealed import (
    Sealing,
    check_sealed,
    is_encrypted,
    open_file,
    remove_encrypted,
    seal_secret,
)
from reconciler.changes.text import (
    DocumentBody,
    DocumentList,
    IrregularTextError,
    JsonDocumentList,
    format_document,
    merge_patch,
    read_body,
    read_documents,
    remove_document,
    replace_body,
    replace_document,
    split_documents,
)
from reconciler.errors import RefusedError
from reconciler.manifests.encrypted import ENCRYPTED_ONLY
from reconciler.model.key import GVC_SCOPED, Key, Kind

Documents = DocumentList | JsonDocumentList
ReadFile = Callable[[str], str | None]
"""From a path to its text, None if there is no such file."""


class EditConflictError(RefusedError):
    """Others changed the same field meanwhile; ``ours`` and ``theirs`` are the two versions of the document."""

    def __init__(self, key: Key, ours: str, theirs: str) -> None:
        super().__init__(f"{key} was changed meanwhile, in the same fields: read it again")
        self.ours = ours
        self.theirs = theirs


def choose_path(key: Key) -> str:
    """Where the manifest of a new resource goes: ``GVC/KIND/NAME.yaml``, for those of the org ``KIND/NAME.yaml``."""
    name = f"{key.kind}/{key.name}.yaml".replace(":", "_")
    return f"{key.gvc}/{name}" if key.gvc else name


def edit_files(edits: list[ResourceEdit], read: ReadFile, sealing: Sealing) -> dict[str, str | None]:
    """The changed files with their texts; None for those to delete. Secrets are encrypted as ``sealing`` wants.

    Raises RefusedError if a document is not there, or a secret cannot be encrypted.
    """
    files: dict[str, _EditedFile] = {}
    changed: dict[str, _EditedFile] = {}
    for edit in edits:
        file = files.get(edit.path)
        if file is None:
            file = files[edit.path] = _EditedFile(read(edit.path))
        if file.apply(edit, sealing):
            changed[edit.path] = file
    return {path: file.text() for path, file in changed.items()}


class _EditedFile:
    """A file that edits change one after the other: document by document where they allow it, else as a whole."""

    def __init__(self, text: str | None) -> None:
        self._become(text)

    def text(self) -> str | None:
        """The text after the edits so far; None if the file is to be deleted."""
        return self._text if self._documents is None else self._documents.text() or None

    def apply(self, edit: ResourceEdit, sealing: Sealing) -> bool:
        """Apply ``edit``; whether that changes the text. Raises RefusedError."""
        if self._documents is not None and edit.text is None:
            try:
                return _apply_alone(edit, self._documents, sealing)
            except IrregularTextError:
                pass
        before = self.text()
        after = _apply_edit(edit, before, sealing)
        if after == before:
            return False
        self._become(after)
        if after is not None and edit.wanted is not None and "data" in edit.wanted and edit.key.kind is Kind.SECRET:
            check_sealed(after, edit.key, sealing)
        return True

    def _become(self, text: str | None) -> None:
        self._text = text
        self._documents = _read_list(text)


def _read_list(text: str | None) -> Documents | None:
    if text is None:
        return None
    for form in (JsonDocumentList, DocumentList):
        with suppress(IrregularTextError):
            return form(text)
    return None


def _apply_alone(edit: ResourceEdit, documents: Documents, sealing: Sealing) -> bool:
    """Apply ``edit`` to its document alone; whether that changes the text.

    Raises IrregularTextError if it has to be applied to the whole file, also where that is refused.
    """
    if edit.key.kind is Kind.SECRET and _may_seal(edit, sealing):
        raise IrregularTextError
    if edit.was is None:
        assert edit.wanted is not None
        documents.append(edit.wanted)
        return True
    number = _find_number(documents.find_named(edit.key.kind, edit.key.name), edit.key)
    if number is None and edit.if_present:
        return False
    if number is None or is_encrypted(documents.value(number)):
        raise IrregularTextError
    if edit.wanted is None:
        documents.remove(number)
        return True
    return documents.replace(number, *_pair_versions(edit, documents.value(number)))


def _may_seal(edit: ResourceEdit, sealing: Sealing) -> bool:
    """Whether ``edit`` of a secret writes values that may have to be encrypted, which takes the whole file."""
    if edit.wanted is None:
        return False
    return edit.was is None or ("data" in edit.wanted and sealing.policy == ENCRYPTED_ONLY)


def has_secrets(text: str) -> bool:
    """Whether a file declares secrets, so that no part of it is shown."""
    # Without the word, only an escape could write the kind.
    if Kind.SECRET not in text and "\\" not in text:
        return False
    return any(isinstance(value, dict) and value.get("kind") == Kind.SECRET for value in _read_values(text))


def find_data(text: str | None, key: Key) -> Any:
    """The data of the secret ``key`` as ``text`` has it, encrypted or not; None without any."""
    document = None if text is None else _find_value(text, key)
    return document.get("data") if isinstance(document, dict) else None


class _FileVersions(NamedTuple):
    """Two versions of a file, and their documents where these can be told apart."""

    base: str | None
    theirs: str | None
    old: Documents | None
    new: Documents | None


def check_conflicts(
    edits: Iterable[ResourceEdit], read_base: ReadFile, read_theirs: ReadFile, sealing: Sealing
) -> None:
    """Raise EditConflictError if a newer file, which ``read_theirs`` reads, changes what one of ``edits`` changes."""
    versions: dict[str, _FileVersions] = {}
    for edit in edits:
        if edit.path not in versions:
            base, theirs = read_base(edit.path), read_theirs(edit.path)
            lists = (None, None) if base == theirs else (_read_list(base), _read_list(theirs))
            versions[edit.path] = _FileVersions(base, theirs, *lists)
        base, theirs, old, new = versions[edit.path]
        if old is None or new is None or edit.was is None or edit.wanted is None or _may_conflict(edit, old, new):
            _check_conflict(edit, base, theirs, sealing)


def _may_conflict(edit: ResourceEdit, base: Documents, theirs: Documents) -> bool:
    """Whether the whole files have to show whether ``theirs`` changes what ``edit`` does."""
    key = edit.key
    old, new = (_find_number(version.find_named(key.kind, key.name), key) for version in (base, theirs))
    if old is None or new is None:
        return True
    before, meanwhile = base.value(old), theirs.value(new)
    if is_encrypted(before) or is_encrypted(meanwhile):
        return True
    try:
        return is_in_conflict(before, base.value_after(old, *_pair_versions(edit, before)), meanwhile)
    except IrregularTextError:
        return True


def _check_conflict(edit: ResourceEdit, base: str | None, theirs: str | None, sealing: Sealing) -> None:
    """Raise EditConflictError if ``theirs``, a newer text of the file than ``base``, changes what ``edit`` changes."""
    if base == theirs or base is None or theirs is None or edit.was is None or edit.wanted is None:
        return
    try:
        old, new = (_decrypt_document(text, edit.key, sealing) for text in (base, theirs))
    except RefusedError:
        if _find_value(base, edit.key) != _find_value(theirs, edit.key):
            raise EditConflictError(edit.key, "", "") from None
        return
    ours = _replace_resource(edit, old)
    if is_in_conflict(*(_find_value(text, edit.key) for text in (old, ours, new))):
        is_secret = edit.key.kind is Kind.SECRET
        shown = ["", ""] if is_secret else [_show_document(text, edit.key) for text in (ours, new)]
        raise EditConflictError(edit.key, *shown)


def _apply_edit(edit: ResourceEdit, text: str | None, sealing: Sealing) -> str | None:
    if edit.was is None:
        return _create_document(edit, text, sealing)
    index = None if text is None else _find_index(text, edit.key)
    if index is None and edit.if_present:
        return text
    if text is None:
        raise RefusedError(f"{edit.path} is no longer in the branch: {edit.key} was moved or deleted meanwhile")
    if index is None:
        raise RefusedError(f"{edit.path} no longer declares {edit.key}: it was moved or deleted meanwhile")
    if edit.text is not None:
        return _rewrite_document(edit.key, edit.text, text, index)
    encrypted = is_encrypted(_read_values(text)[index])
    if edit.wanted is None and encrypted:
        return remove_encrypted(text, index, edit.key, sealing)
    if edit.wanted is None:
        return remove_document(text, index) or None
    if encrypted:
        return text if edit.was == edit.wanted else _seal_again(edit, text, index, sealing)
    after = _replace_resource(edit, text)
    if edit.key.kind is Kind.SECRET and "data" in edit.wanted:
        return seal_secret(after, edit.key, edit.path, sealing, is_new=False)
    return after


def _rewrite_document(key: Key, written: DocumentText, text: str, index: int) -> str:
    """``text`` with what an author has ``written`` as document ``index``. Raises EditConflictError."""
    body = read_body(text, index)
    if body is None or body.text != written.before:
        shown = ("", "") if key.kind is Kind.SECRET or body is None else (written.after, body.text)
        raise EditConflictError(key, *shown)
    return replace_body(text, index, written.after)


def find_document(text: str, key: Key) -> DocumentBody | None:
    """The text of the document that declares ``key``; None if none does. Raises RefusedError if nobody can edit it."""
    index = _find_index(text, key)
    if index is None:
        return None
    if is_encrypted(_read_values(text)[index]):
        raise RefusedError(f"{key} is encrypted in Git: change it there with `reconciler secret edit`")
    body = read_body(text, index)
    if body is None:
        raise RefusedError(f"{key} is an item of a list in JSON: change it with `reconciler patch`, or in Git")
    return body


def _create_document(edit: ResourceEdit, text: str | None, sealing: Sealing) -> str:
    assert edit.wanted is not None
    after = format_document(edit.wanted)
    if text is not None:
        separator = "" if text.endswith("\n") else "\n"
        after = f"{text}{separator}---\n{after}"
    return seal_secret(after, edit.key, edit.path, sealing, is_new=True) if edit.key.kind is Kind.SECRET else after


def _seal_again(edit: ResourceEdit, text: str, index: int, sealing: Sealing) -> str | None:
    opened = open_file(text, index, edit.key, sealing)
    after = _replace_resource(edit, opened.text)
    return text if after == opened.text else opened.close(after)


def _replace_resource(edit: ResourceEdit, text: str) -> str:
    """``text``, whose document is in plain text, with ``edit``."""
    index = _find_index(text, edit.key)
    assert index is not None
    return replace_document(text, index, *_pair_versions(edit, _read_values(text)[index]))


def _pair_versions(edit: ResourceEdit, document: Any) -> tuple[Document, Document]:
    """From what to what ``edit`` changes ``document``, which is in plain text."""
    assert edit.was is not None
    assert edit.wanted is not None
    was, desired = dict(edit.was), dict(edit.wanted)
    if edit.key.kind is Kind.SECRET and "data" in desired:
        was["data"] = document.get("data")
        if edit.patches_data:
            desired["data"] = merge_patch(was["data"], desired["data"])
        if desired["data"] is None:
            del desired["data"]
    return was, desired


def _decrypt_document(text: str, key: Key, sealing: Sealing) -> str:
    """``text``, or what is encrypted together with ``key`` in it, in plain text."""
    index = _find_index(text, key)
    if index is None or not is_encrypted(_read_values(text)[index]):
        return text
    return open_file(text, index, key, sealing).text


def _find_index(text: str, key: Key) -> int | None:
    """The number of the document that declares ``key``."""
    return _find_number(enumerate(_read_values(text)), key)


def _find_number(documents: Iterable[tuple[int, Any]], key: Key) -> int | None:
    """The number of the one of ``documents`` that declares ``key``.

    One without a GVC can be of another one, whose directory it is in: one that names the GVC comes first.
    """
    numbers: dict[bool, int] = {}
    for number, document in documents:
        if not isinstance(document, dict) or (document.get("kind"), document.get("name")) != (key.kind, key.name):
            continue
        if key.kind not in GVC_SCOPED or document.get("gvc", key.gvc) == key.gvc:
            numbers.setdefault("gvc" in document, number)
    return numbers.get(True, numbers.get(False))


def _read_values(text: str) -> list[Any]:
    try:
        return read_documents(text)
    except yaml.YAMLError as error:
        raise RefusedError(f"the file with the resource is not YAML at the newest commit: {error}") from None


def _find_value(text: str, key: Key) -> Any:
    index = _find_index(text, key)
    return None if index is None else _read_values(text)[index]


def _show_document(text: str, key: Key) -> str:
    index = _find_index(text, key)
    parts = split_documents(text)
    return parts[index] if index is not None and index < len(parts) else text


def is_in_conflict(old: Any, ours: Any, theirs: Any) -> bool:
    """Whether both sides changed the same value of ``old``, to different ones."""
    if old in (ours, theirs) or ours == theirs:
        return False
    if isinstance(old, dict) and isinstance(ours, dict) and isinstance(theirs, dict):
        names = {*old, *ours, *theirs}
        return any(is_in_conflict(old.get(name), ours.get(name), theirs.get(name)) for name in names)
    return True
