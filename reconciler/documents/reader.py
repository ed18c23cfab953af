"""From the bytes of a file to its documents and all its faults."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reconciler.documents.encoding import check_encoding, end_of, fix_json_surrogates
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.positions import find_position
from reconciler.documents.types import TEXT_FIELDS, Document, Reading
from reconciler.model.finding import Fault

if TYPE_CHECKING:
    from reconciler.documents.composer import Composer

_TEMPLATE = rb"\{\{-?\s{0,8}(?:[.$/]|(?:if|range|include|template|with|define|end|else|block|toYaml)\b)"
"""An action of a template, such as those of Helm."""

SINGLE = frozenset({"ambiguous-scalar", "control-character", "duplicate-key", "key-type", "nan", "number-range"})
"""Faults that leave the rest of a document usable."""


def parse_documents(
    raw: bytes, limits: Limits = LIMITS, text_fields: frozenset[str] = TEXT_FIELDS, *, is_json: bool = False
) -> Reading:
    """All documents of a file, in one pass that costs little more than parsing; no content of ``raw`` makes it raise.

    A fault costs its document only, except where it ends the file: a limit, or a syntax error. Scalars resolve by the
    core schema of YAML 1.2; in the top-level mappings named by ``text_fields`` numbers and booleans stay as written.
    ``is_json``: the file is JSON and nothing else; each item of a list at its root is a document.
    """
    fault = check_encoding(raw, limits, is_stream=is_json)
    if fault:
        return Reading([], [fault], is_json=is_json)
    if is_json:
        return _read_json(raw, limits, text_fields)
    from reconciler.documents.composer import compose_documents  # loads PyYAML, which files in JSON do not need

    raw = fix_json_surrogates(raw)
    return compose_documents(raw, limits, text_fields, partial(_collect_documents, raw))


def _read_json(raw: bytes, limits: Limits, text_fields: frozenset[str]) -> Reading:
    from reconciler.documents.json.quick import read_quickly

    documents = read_quickly(raw, limits, text_fields)
    if documents is not None:
        return Reading(documents, [], is_json=True)
    return read_json_events(raw, limits, text_fields)


def read_json_events(raw: bytes, limits: Limits = LIMITS, text_fields: frozenset[str] = TEXT_FIELDS) -> Reading:
    """What ``parse_documents`` gives for a file in JSON, by its events."""
    from reconciler.documents.composer import compose_documents
    from reconciler.documents.json.events import JsonEvents

    reading = compose_documents(
        raw, limits, text_fields, partial(_collect_documents, raw), lambda raw: JsonEvents(raw.decode())
    )
    return replace(reading, is_json=True)


def _collect_documents(raw: bytes, composer: Composer) -> Reading:
    from yaml import YAMLError

    from reconciler.documents.fault_sink import FormFault, LimitReached

    documents: list[Document] = []
    partial: list[Document] = []
    faults = composer.faults.faults
    try:
        for document, wrong in composer.documents():
            if not wrong:
                documents.append(document)
            elif SINGLE.issuperset(fault.rule for fault in wrong):
                partial.append(document)
    except FormFault as error:
        faults.append(error.fault)
    except LimitReached:
        pass
    except YAMLError as error:
        from reconciler.documents.syntax_errors import explain_error

        faults.append(explain_error(error, raw, composer.faults.limits))
    if faults and (template := re.search(_TEMPLATE, raw)):
        return Reading([], [_template_fault(raw, template.start())])
    return Reading(documents, _in_order(faults, raw) if faults else faults, partial)


def _template_fault(raw: bytes, at: int) -> Fault:
    """The fault of a file that is YAML only after it is rendered."""
    line, column = end_of(raw[:at])
    message = "this is a template, such as those of Helm, and no manifest yet"
    return Fault("template", message, line, column, "render it first, for example with `helm template`")


def _in_order(faults: list[Fault], raw: bytes) -> list[Fault]:
    """``faults`` sorted by position, none behind the end of the file.

    For a file without a last line break the parser reports its end on a line that does not exist.
    """
    text = raw.decode("utf-8-sig")
    end = find_position(text, len(text))
    placed = (((fault.line, fault.column), fault) for fault in faults)
    bounded = (fault if at <= end else replace(fault, line=end[0], column=end[1]) for at, fault in placed)
    return sorted(bounded, key=lambda fault: (fault.line, fault.column))
