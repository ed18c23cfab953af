"""The content of one file, as far as it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.model.finding import Fault, Pointer

TEXT_FIELDS = frozenset({"tags"})
"""Top-level mappings in which numbers and booleans stay as written."""

UNREADABLE = "\0"
"""The first character of the replacement for an unreadable text or key; no other text has it."""


class Document(msgspec.Struct, frozen=True, gc=False):
    """One ``---`` part of a file.

    ``value`` is made of dict, list, str, int, float, bool and None only, and read-only: aliases share values.
    ``index`` counts the non-empty documents of the file from 0, those with faults too; ``line`` is where
    the document's first node begins, from 1.
    """

    value: Any
    index: int
    line: int


class Reading(msgspec.Struct, frozen=True):
    """The valid documents of a file, and the faults of the others, sorted by position.

    ``partial`` are those of the others in which only single values are unknown: see ``unreadable_paths``. ``is_json``:
    it is read as JSON.
    """

    documents: list[Document]
    faults: list[Fault]
    partial: list[Document] = []
    is_json: bool = False


def unreadable_paths(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """The pointers of the unreadable values and keys of a partial document."""
    if isinstance(value, str):
        if value.startswith(UNREADABLE):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from ((*at, key),) if key.startswith(UNREADABLE) else unreadable_paths(member, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unreadable_paths(item, (*at, index))
