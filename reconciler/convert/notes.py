"""Notes about a conversion, placed first by the path to a value, then by line and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reconciler.convert.rules import RULEBOOK
from reconciler.documents.locator import Locator
from reconciler.model.finding import Finding, Pointer, Severity


class ConversionNote(msgspec.Struct, frozen=True):
    """One note: the rule, the document (file and index), the path to the value, and the message.

    ``on_key`` places it on the key of the value.
    """

    rule: str
    path: str
    index: int
    at: Pointer
    message: str
    suggestion: str = ""
    on_key: bool = False


def findings(remarks: Iterable[ConversionNote], files: Mapping[str, bytes]) -> list[Finding]:
    """``remarks`` with their places in ``files``, in order of place, each once; severities are those of the rules."""
    locators = {path: Locator(raw) for path, raw in files.items()}
    in_order = sorted(set(remarks), key=lambda remark: (remark.path, remark.index))
    return sorted(_finding(remark, locators[remark.path]) for remark in in_order)


def _finding(remark: ConversionNote, locator: Locator) -> Finding:
    places = locator.of(remark.index)
    line, column = places.key(remark.at) if remark.on_key else places.value(remark.at)
    severity = RULEBOOK[remark.rule].severity
    return Finding(remark.path, line, column, remark.rule, severity, remark.message, remark.suggestion)


def is_faulty(remark: ConversionNote) -> bool:
    """Whether ``remark`` reports invalid input, not only a loss in the conversion."""
    return RULEBOOK[remark.rule].severity is Severity.ERROR
