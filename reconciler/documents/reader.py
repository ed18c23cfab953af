"""Bytes of one file in, its documents and all its faults out."""

from __future__ import annotations

from reconciler.documents.encoding import check_encoding
from reconciler.documents.fast_path import TEXT_FIELDS, parse
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.types import Document, Reading


def read(raw: bytes, limits: Limits = LIMITS, text_fields: frozenset[str] = TEXT_FIELDS) -> Reading:
    """All documents of a file, in one pass that costs little more than parsing it; never raises for what is in ``raw``.

    A fault costs its document only, except where it ends the file: a limit, or a syntax error. Scalars resolve by the
    core schema of YAML 1.2; in the top-level mappings named by ``text_fields`` numbers and booleans stay as written.
    """
    fault = check_encoding(raw, limits)
    if fault:
        return Reading([], [fault])
    plain = parse(raw, limits, text_fields)
    if plain is not None:
        return Reading([Document(value, index, line) for index, (line, value) in enumerate(plain)], [])
    from reconciler.documents.parser import parsed  # 12 ms of every command, which plain files need not

    return parsed(raw, limits, text_fields)
