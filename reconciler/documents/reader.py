"""Bytes of one file in, its documents and all its faults out."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace
from yaml import YAMLError

from reconciler.documents.compose import Composer, NeedKeyLines
from reconciler.documents.encoding import refuse
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.sink import Stop
from reconciler.documents.syntax import explain, position
from reconciler.model.finding import Fault

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
    """The sound documents of a file, and the faults of the others in order of place."""

    documents: list[Document]
    faults: list[Fault]


def read(raw: bytes, limits: Limits = LIMITS, text_fields: frozenset[str] = TEXT_FIELDS) -> Reading:
    """All documents of a file, in one pass that costs little more than parsing it; never raises for what is in ``raw``.

    A fault costs its document only, except where it ends the file: a limit, or a syntax error. Scalars resolve by the
    core schema of YAML 1.2; in the top-level mappings named by ``text_fields`` numbers and booleans stay as written.
    """
    fault = refuse(raw, limits)
    if fault:
        return Reading([], [fault])
    try:
        return _read(raw, Composer(raw, limits, text_fields, key_lines=False))
    except NeedKeyLines:
        return _read(raw, Composer(raw, limits, text_fields, key_lines=True))


def _read(raw: bytes, composer: Composer) -> Reading:
    documents: list[Document] = []
    faults = composer.sink.faults
    try:
        for index, line, value in composer.documents():
            documents.append(Document(value, index, line))
    except Stop:
        pass
    except YAMLError as error:
        faults.append(explain(error, raw))
    return Reading(documents, _in_order(faults, raw) if faults else faults)


def _in_order(faults: list[Fault], raw: bytes) -> list[Fault]:
    """``faults`` by place, none of them behind the end of the file.

    Where a file has no last line break, its end is to the parser on a line that does not exist.
    """
    text = raw.decode("utf-8-sig")
    end = position(text, len(text))
    placed = (((fault.line, fault.column), fault) for fault in faults)
    kept = (fault if at <= end else replace(fault, line=end[0], column=end[1]) for at, fault in placed)
    return sorted(kept, key=lambda fault: (fault.line, fault.column))
