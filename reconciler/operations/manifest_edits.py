"""What a change of resources means for the files of a source: pure, from texts to texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import yaml

from reconciler.errors import RefusedError
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.operations.manifest_text import new_document, remove_document, replace_document, split_documents

Document = Mapping[str, Any]
ReadFile = Callable[[str], str | None]
"""From a path to its text, None if there is no such file."""


class ResourceEdit(NamedTuple):
    """A wanted change of the resource ``key`` in the file ``path``: from ``was`` to ``wanted``.

    ``was`` is None for a resource to create, ``wanted`` for one to delete.
    """

    key: Key
    path: str
    was: Document | None
    wanted: Document | None


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


def edited_files(edits: list[ResourceEdit], read: ReadFile) -> dict[str, str | None]:
    """The changed files with their texts; None for those to delete. Raises RefusedError if a document is not there."""
    found: dict[str, str | None] = {}
    for edit in edits:
        before = found[edit.path] if edit.path in found else read(edit.path)
        after = _applied(edit, before)
        if after != before:
            found[edit.path] = after
    return found


def has_secrets(text: str) -> bool:
    """Whether a file declares secrets, so that no part of it is shown."""
    return any(isinstance(each, dict) and each.get("kind") == Kind.SECRET for each in _documents(text))


def check_conflict(edit: ResourceEdit, base: str | None, theirs: str | None) -> None:
    """Raise EditConflictError if ``theirs``, a newer text of the file than ``base``, changes what ``edit`` changes."""
    if base == theirs or base is None or theirs is None or edit.was is None or edit.wanted is None:
        return
    ours = _applied(edit, base)
    old, mine, new = (_document(text or "", edit.key) for text in (base, ours, theirs))
    if _in_conflict(old, mine, new):
        shown = (
            [_shown(text or "", edit.key) for text in (ours, theirs)] if edit.key.kind is not Kind.SECRET else ["", ""]
        )
        raise EditConflictError(edit.key, *shown)


def _applied(edit: ResourceEdit, text: str | None) -> str | None:
    if edit.was is None:
        assert edit.wanted is not None
        if text is None:
            return new_document(edit.wanted)
        separator = "" if text.endswith("\n") else "\n"
        return f"{text}{separator}---\n{new_document(edit.wanted)}"
    if text is None:
        raise RefusedError(f"{edit.path} is no longer in the branch: {edit.key} was moved or deleted meanwhile")
    index = _index(text, edit.key)
    if index is None:
        raise RefusedError(f"{edit.path} no longer declares {edit.key}: it was moved or deleted meanwhile")
    if edit.wanted is None:
        return remove_document(text, index) or None
    return replace_document(text, index, edit.was, edit.wanted)


def _index(text: str, key: Key) -> int | None:
    """The number of the document that declares ``key``."""
    for number, document in enumerate(_documents(text)):
        if not isinstance(document, dict) or (document.get("kind"), document.get("name")) != (key.kind, key.name):
            continue
        if key.kind not in GVC_SCOPED or document.get("gvc", key.gvc) == key.gvc:
            if "sops" in document:
                raise RefusedError(f"{key} is encrypted in Git: change it with `reconciler secret edit`")
            return number
    return None


def _documents(text: str) -> list[Any]:
    try:
        return list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise RefusedError(f"the file with the resource is not YAML at the newest commit: {error}") from None


def _document(text: str, key: Key) -> Any:
    index = _index(text, key)
    return None if index is None else _documents(text)[index]


def _shown(text: str, key: Key) -> str:
    index = _index(text, key)
    parts = split_documents(text)
    return parts[index] if index is not None and index < len(parts) else text


def _in_conflict(old: Any, ours: Any, theirs: Any) -> bool:
    """Whether both sides changed the same value of ``old``, to different ones."""
    if old in (ours, theirs) or ours == theirs:
        return False
    if isinstance(old, dict) and isinstance(ours, dict) and isinstance(theirs, dict):
        names = {*old, *ours, *theirs}
        return any(_in_conflict(old.get(name), ours.get(name), theirs.get(name)) for name in names)
    return True
