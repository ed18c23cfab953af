"""Notes about a conversion, placed first by the path to a value, then by line and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reconciler.convert.quadlet.units import UnitLocator
from reconciler.convert.rules import RULEBOOK
from reconciler.documents.locator import Locator
from reconciler.documents.recognition import is_unit
from reconciler.model.finding import Finding, Pointer, Severity
from reconciler.printable import printable_finding

MOST_OF_A_RULE = 100
"""The most notes of one rule about a file, as a file of manifests has at most so many faults."""


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


def make_findings(remarks: Iterable[ConversionNote], files: Mapping[str, bytes]) -> list[Finding]:
    """``remarks`` with their places in ``files``, in order of place, each once; severities are those of the rules.

    Of one rule, a file has at most ``MOST_OF_A_RULE``: the last one says how many more there are.
    """
    locators = {path: UnitLocator(raw) if is_unit(path) else Locator(raw) for path, raw in files.items()}
    in_order = sorted(dict.fromkeys(remarks), key=lambda remark: (remark.path, remark.index))
    by_rule: dict[tuple[str, str], list[ConversionNote]] = {}
    for remark in in_order:
        by_rule.setdefault((remark.path, remark.rule), []).append(remark)
    many = [notes for notes in by_rule.values() if len(notes) > MOST_OF_A_RULE]
    more = {notes[MOST_OF_A_RULE - 1]: len(notes) - MOST_OF_A_RULE for notes in many}
    shown = {remark for notes in by_rule.values() for remark in notes[:MOST_OF_A_RULE]}
    return sorted(_make_finding(note, locators[note.path], more.get(note, 0)) for note in in_order if note in shown)


def _make_finding(remark: ConversionNote, locator: Locator | UnitLocator, more: int) -> Finding:
    places = locator.of(remark.index)
    line, column = places.key(remark.at) if remark.on_key else places.value(remark.at)
    severity = RULEBOOK[remark.rule].severity
    message = printable_finding(remark.message) + (f" (and {more:,} more of these in the file)" if more else "")
    suggestion = printable_finding(remark.suggestion)
    return Finding(remark.path, line, column, remark.rule, severity, message, suggestion)


def is_faulty(remark: ConversionNote) -> bool:
    """Whether ``remark`` reports invalid input, not only a loss in the conversion."""
    return RULEBOOK[remark.rule].severity is Severity.ERROR
