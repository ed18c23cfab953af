"""What a change of resources means for the files of a source: pure, from texts to texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from reconciler.errors import RefusedError
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.operations.change_requests import ResourceEdit
from reconciler.operations.manifest_text import (
    merge_patch,
    new_document,
    read_documents,
    remove_document,
    replace_document,
    split_documents,
)
from reconciler.operations.sealed_documents import (
    Sealing,
    check_sealed,
    is_encrypted,
    open_file,
    remove_encrypted,
    seal,
)

ReadFile = Callable[[str], str | None]
"""From a path to its text, None if there is no such file."""


class EditConflictError(RefusedError):
    """Others changed the same field meanwhile; ``ours`` and ``theirs`` are the two versions of the document."""

    def __init__(self, key: Key, ours: str, theirs: str) -> None:
        super().__init__(f"{key} was changed meanwhile, in the same fields: read it again")
        self.ours = ours
        self.theirs = theirs


def new_path(key: Key) -> str:
    """Where the manifest of a new resource goes: ``GVC/KIND/NAME.yaml``, for those of the org ``KIND/NAME.yaml``."""
    name = f"{key.kind}/{key.name}.yaml".replace(":", "_")
    return f"{key.gvc}/{name}" if key.gvc else name


def edited_files(edits: list[ResourceEdit], read: ReadFile, sealing: Sealing) -> dict[str, str | None]:
    """The changed files with their texts; None for those to delete. Secrets are encrypted as ``sealing`` wants.

    Raises RefusedError if a document is not there, or a secret cannot be encrypted.
    """
    found: dict[str, str | None] = {}
    for edit in edits:
        before = found[edit.path] if edit.path in found else read(edit.path)
        after = _applied(edit, before, sealing)
        if after != before:
            found[edit.path] = after
            if after is not None and edit.wanted is not None and "data" in edit.wanted and edit.key.kind is Kind.SECRET:
                check_sealed(after, edit.key, sealing)
    return found


def has_secrets(text: str) -> bool:
    """Whether a file declares secrets, so that no part of it is shown."""
    return any(isinstance(each, dict) and each.get("kind") == Kind.SECRET for each in _documents(text))


def find_data(text: str | None, key: Key) -> Any:
    """The data of the secret ``key`` as ``text`` has it, encrypted or not; None without any."""
    document = None if text is None else _document(text, key)
    return document.get("data") if isinstance(document, dict) else None


def check_conflict(edit: ResourceEdit, base: str | None, theirs: str | None, sealing: Sealing) -> None:
    """Raise EditConflictError if ``theirs``, a newer text of the file than ``base``, changes what ``edit`` changes."""
    if base == theirs or base is None or theirs is None or edit.was is None or edit.wanted is None:
        return
    try:
        old, new = (_in_plain(text, edit.key, sealing) for text in (base, theirs))
    except RefusedError:
        if _document(base, edit.key) != _document(theirs, edit.key):
            raise EditConflictError(edit.key, "", "") from None
        return
    ours = _replaced(edit, old)
    if in_conflict(*(_document(text, edit.key) for text in (old, ours, new))):
        shown = [_shown(text, edit.key) for text in (ours, new)] if edit.key.kind is not Kind.SECRET else ["", ""]
        raise EditConflictError(edit.key, *shown)


def _applied(edit: ResourceEdit, text: str | None, sealing: Sealing) -> str | None:
    if edit.was is None:
        return _created(edit, text, sealing)
    index = None if text is None else _index(text, edit.key)
    if index is None and edit.if_present:
        return text
    if text is None:
        raise RefusedError(f"{edit.path} is no longer in the branch: {edit.key} was moved or deleted meanwhile")
    if index is None:
        raise RefusedError(f"{edit.path} no longer declares {edit.key}: it was moved or deleted meanwhile")
    encrypted = is_encrypted(_documents(text)[index])
    if edit.wanted is None and encrypted:
        return remove_encrypted(text, index, edit.key, sealing)
    if edit.wanted is None:
        return remove_document(text, index) or None
    if encrypted:
        return text if edit.was == edit.wanted else _sealed_again(edit, text, index, sealing)
    after = _replaced(edit, text)
    if edit.key.kind is Kind.SECRET and "data" in edit.wanted:
        return seal(after, edit.key, edit.path, sealing, is_new=False)
    return after


def _created(edit: ResourceEdit, text: str | None, sealing: Sealing) -> str:
    assert edit.wanted is not None
    after = new_document(edit.wanted)
    if text is not None:
        separator = "" if text.endswith("\n") else "\n"
        after = f"{text}{separator}---\n{after}"
    return seal(after, edit.key, edit.path, sealing, is_new=True) if edit.key.kind is Kind.SECRET else after


def _sealed_again(edit: ResourceEdit, text: str, index: int, sealing: Sealing) -> str | None:
    opened = open_file(text, index, edit.key, sealing)
    after = _replaced(edit, opened.text)
    return text if after == opened.text else opened.close(after)


def _replaced(edit: ResourceEdit, text: str) -> str:
    """``text``, whose document is in plain text, with ``edit``."""
    assert edit.was is not None
    assert edit.wanted is not None
    index = _index(text, edit.key)
    assert index is not None
    was, wanted = dict(edit.was), dict(edit.wanted)
    if edit.key.kind is Kind.SECRET and "data" in wanted:
        was["data"] = _documents(text)[index].get("data")
        if edit.patches_data:
            wanted["data"] = merge_patch(was["data"], wanted["data"])
        if wanted["data"] is None:
            del wanted["data"]
    return replace_document(text, index, was, wanted)


def _in_plain(text: str, key: Key, sealing: Sealing) -> str:
    """``text``, or what is encrypted together with ``key`` in it, in plain text."""
    index = _index(text, key)
    if index is None or not is_encrypted(_documents(text)[index]):
        return text
    return open_file(text, index, key, sealing).text


def _index(text: str, key: Key) -> int | None:
    """The number of the document that declares ``key``.

    One without a GVC can be of another one, whose directory it is in: one that names the GVC comes first.
    """
    found: dict[bool, int] = {}
    for number, document in enumerate(_documents(text)):
        if not isinstance(document, dict) or (document.get("kind"), document.get("name")) != (key.kind, key.name):
            continue
        if key.kind not in GVC_SCOPED or document.get("gvc", key.gvc) == key.gvc:
            found.setdefault("gvc" in document, number)
    return found.get(True, found.get(False))


def _documents(text: str) -> list[Any]:
    try:
        return read_documents(text)
    except yaml.YAMLError as error:
        raise RefusedError(f"the file with the resource is not YAML at the newest commit: {error}") from None


def _document(text: str, key: Key) -> Any:
    index = _index(text, key)
    return None if index is None else _documents(text)[index]


def _shown(text: str, key: Key) -> str:
    index = _index(text, key)
    parts = split_documents(text)
    return parts[index] if index is not None and index < len(parts) else text


def in_conflict(old: Any, ours: Any, theirs: Any) -> bool:
    """Whether both sides changed the same value of ``old``, to different ones."""
    if old in (ours, theirs) or ours == theirs:
        return False
    if isinstance(old, dict) and isinstance(ours, dict) and isinstance(theirs, dict):
        names = {*old, *ours, *theirs}
        return any(in_conflict(old.get(name), ours.get(name), theirs.get(name)) for name in names)
    return True
