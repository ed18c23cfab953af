"""Bytes of one file in, its documents and all its faults out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace
from yaml import YAMLError

from reconciler.documents.braces import as_yaml
from reconciler.documents.compose import UNREAD, Composer, NeedKeyLines
from reconciler.documents.encoding import refuse
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.lines import values
from reconciler.documents.sink import Stop
from reconciler.documents.syntax import explain, position
from reconciler.model.finding import Fault, Pointer

SINGLE = frozenset({"ambiguous-scalar", "control-character", "duplicate-key", "key-type", "nan", "number-range"})
"""Faults that leave the rest of a document as it is meant."""

TEXT_FIELDS = frozenset({"tags"})


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

    ``partial`` are those others of which all is known but single values: see ``unread``.
    """

    documents: list[Document]
    faults: list[Fault]
    partial: list[Document] = []


def read(raw: bytes, limits: Limits = LIMITS, text_fields: frozenset[str] = TEXT_FIELDS) -> Reading:
    """All documents of a file, in one pass that costs little more than parsing it; never raises for what is in ``raw``.

    A fault costs its document only, except where it ends the file: a limit, or a syntax error. Scalars resolve by the
    core schema of YAML 1.2; in the top-level mappings named by ``text_fields`` numbers and booleans stay as written.
    """
    fault = refuse(raw, limits)
    if fault:
        return Reading([], [fault])
    plain = values(raw, limits, text_fields)
    if plain is not None:
        return Reading([Document(value, index, line) for index, (line, value) in enumerate(plain)], [])
    raw = as_yaml(raw)
    try:
        return _read(raw, Composer(raw, limits, text_fields, key_lines=False))
    except NeedKeyLines:
        return _read(raw, Composer(raw, limits, text_fields, key_lines=True))


def _read(raw: bytes, composer: Composer) -> Reading:
    documents: list[Document] = []
    partial: list[Document] = []
    faults = composer.sink.faults
    try:
        for index, line, value, wrong in composer.documents():
            document = Document(value, index, line)
            if not wrong:
                documents.append(document)
            elif SINGLE.issuperset(fault.rule for fault in wrong):
                partial.append(document)
    except Stop:
        pass
    except YAMLError as error:
        faults.append(explain(error, raw))
    return Reading(documents, _in_order(faults, raw) if faults else faults, partial)


def unread(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """Where in a partial document values stand that are not what is written there, and keys."""
    if isinstance(value, str):
        if value.startswith(UNREAD):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from ((*at, key),) if key.startswith(UNREAD) else unread(member, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unread(item, (*at, index))


def _in_order(faults: list[Fault], raw: bytes) -> list[Fault]:
    """``faults`` by place, none of them behind the end of the file.

    Where a file has no last line break, its end is to the parser on a line that does not exist.
    """
    text = raw.decode("utf-8-sig")
    end = position(text, len(text))
    placed = (((fault.line, fault.column), fault) for fault in faults)
    kept = (fault if at <= end else replace(fault, line=end[0], column=end[1]) for at, fault in placed)
    return sorted(kept, key=lambda fault: (fault.line, fault.column))
