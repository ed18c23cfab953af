"""What one file says, as far as it could be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.model.finding import Fault, Pointer

UNREADABLE = "\0"
"""How a text or a key begins that stands for one which cannot be read; no other holds this character."""


class Document(msgspec.Struct, frozen=True, gc=False):
    """One ``---`` part of a file.

    ``value`` is made of dict, list, str, int, float, bool and None only, and read-only: an alias shares what it names.
    ``index`` counts the documents of the file that are not empty, from 0, those with faults too; ``line`` is where
    the document's first node begins, from 1.
    """

    value: Any
    index: int
    line: int


class Reading(msgspec.Struct, frozen=True):
    """The sound documents of a file, and the faults of the others in order of place.

    ``partial`` are those others of which all is known but single values: see ``unreadable_paths``.
    """

    documents: list[Document]
    faults: list[Fault]
    partial: list[Document] = []


def unreadable_paths(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """Where in a partial document values stand that are not what is written there, and keys."""
    if isinstance(value, str):
        if value.startswith(UNREADABLE):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from ((*at, key),) if key.startswith(UNREADABLE) else unreadable_paths(member, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unreadable_paths(item, (*at, index))
