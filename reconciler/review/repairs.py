"""Repairs of findings that have exactly one safe repair: a text of a file in, the repaired text out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from yaml import YAMLError

from reconciler.changes.text import split_documents
from reconciler.documents.editing.nodes import MappingNode, read_node
from reconciler.documents.event_positions import find_scalar_spans
from reconciler.documents.fault_sink import LimitReached
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Fault, Severity

_MEANT = re.compile(r"did you mean `?([^`?\s]+)`?\?")
_QUOTED = re.compile(r"put quotes around it(?:: \".*\")?|put it in quotes|write \".*\" in quotes")
_WRITTEN = re.compile(r"write (true|false|-?[0-9]+(?:\.[0-9]+)?)(?: without quotes)?")
_MILLICORES = re.compile(r"write ([0-9]+m)")
_TYPES = frozenset({"wrong-type", "ambiguous-scalar"})
_CPU = frozenset({"wrong-type", "cpu-quantity"})
_SERVER_OWNED = "server-owned-field"
_BREAKING = frozenset({"duplicate-key", "syntax"})
"""Errors that no repair may bring, wherever they are."""
_ROUNDS = 20
"""A repair may show the next fault: of a field with a wrong name, that of its value."""


class _Change(NamedTuple):
    """The text from ``start`` to ``end``, in characters, becomes ``text``."""

    start: int
    end: int
    text: str


def repair_text(text: str, dialect: ManifestContext) -> str:
    """``text`` of a manifest file in YAML with each safe repair: one that ends its fault, and brings no other there."""
    for _ in range(_ROUNDS):
        faults = _list_faults(text, dialect)
        trials = _list_trials(text, faults)
        repaired = next((each.text for each in trials if _is_better(each, faults, dialect)), None)
        if repaired is None:
            return text
        text = repaired
    return text


class _Trial(NamedTuple):
    """A repaired text, and the faults that are repaired in it."""

    text: str
    repaired: Sequence[Fault]


def _list_faults(text: str, dialect: ManifestContext) -> list[Fault]:
    return list(decode_manifests(text.encode(), dialect).faults)


def _list_trials(text: str, faults: Sequence[Fault]) -> Iterator[_Trial]:
    """``text`` with all repairs at once, and then with each alone, where not all of them fit together."""
    changes = {change: fault for fault in faults for change in _find_changes(text, fault)}
    apart: list[_Change] = []
    for change in sorted(changes):
        if not apart or change.start >= apart[-1].end:
            apart.append(change)
    if apart:
        yield _Trial(_apply_changes(text, apart), [*dict.fromkeys(changes[change] for change in apart)])
    if apart[1:]:
        yield from (_Trial(_apply_changes(text, [change]), [changes[change]]) for change in apart)


def _apply_changes(text: str, changes: Iterable[_Change]) -> str:
    pieces, position = list[str](), 0
    for change in changes:
        pieces += [text[position : change.start], change.text]
        position = change.end
    return "".join([*pieces, text[position:]])


def _is_better(trial: _Trial, before: Sequence[Fault], dialect: ManifestContext) -> bool:
    """Whether the repaired faults are gone, and no error has come in their places; others were hidden by them."""
    faults = _list_faults(trial.text, dialect)
    after = Counter((fault.rule, fault.message) for fault in faults)
    former = Counter((fault.rule, fault.message) for fault in before)
    gone = Counter((fault.rule, fault.message) for fault in trial.repaired)
    places = {(fault.line, fault.column) for fault in trial.repaired}
    new = [fault for fault in faults if fault.severity is Severity.ERROR and (fault.rule, fault.message) not in former]
    ends = all(after[fault] <= former[fault] - count for fault, count in gone.items())
    return ends and not any((fault.line, fault.column) in places or fault.rule in _BREAKING for fault in new)


def _find_changes(text: str, fault: Fault) -> Iterator[_Change]:
    """The one safe repair of ``fault``; nothing if there is none, or several."""
    if fault.rule == _SERVER_OWNED:
        yield from _find_fields(text, fault.message.partition(": ")[2].split(", "))
        return
    stop = find_scalar_spans(text.encode()).get((fault.line, fault.column), 0)
    lines = text.splitlines(keepends=True)
    if not fault.column < stop <= len(lines[fault.line - 1]) + 1:
        return  # it is on several lines, or no scalar
    start = sum(map(len, lines[: fault.line - 1])) + fault.column - 1
    end = start + stop - fault.column
    for rules, pattern, write in _REPAIRS:
        if (not rules or fault.rule in rules) and (match := pattern.fullmatch(fault.suggestion)) is not None:
            yield _Change(start, end, write(text[start:end], match))
            return


def _find_fields(text: str, names: Collection[str]) -> Iterator[_Change]:
    """The lines of the fields ``names`` at the root of each document, to be removed."""
    before = 0
    with suppress(YAMLError, LimitReached):
        for part in split_documents(text):
            root = read_node(part)
            fields = root.by_name() if isinstance(root, MappingNode) and not root.is_flow else {}
            for entry in (entry for name, entry in fields.items() if name in names):
                end = text.find("\n", before + entry.value.end - 1) + 1
                yield _Change(before + entry.key.start, end or len(text), "")
            before += len(part)


class _Repair(NamedTuple):
    """What a suggestion of one of ``rules`` (of any, if there are none) asks for, and what writes it."""

    rules: frozenset[str]
    suggestion: re.Pattern[str]
    write: Callable[[str, re.Match[str]], str]


def _replace_word(written: str, match: re.Match[str]) -> str:
    """The word that is meant, in the quotes of the one that is written."""
    quote = written[:1] if written[:1] in "\"'" else ""
    return f"{quote}{match[1]}{quote}"


def _quote_word(written: str, _: re.Match[str]) -> str:
    return f'"{written}"'


_REPAIRS: tuple[_Repair, ...] = (
    _Repair(frozenset(), _MEANT, _replace_word),
    _Repair(_TYPES, _QUOTED, _quote_word),
    _Repair(_TYPES, _WRITTEN, lambda _, match: match[1]),
    _Repair(_CPU, _MILLICORES, lambda _, match: match[1]),
)
"""An amount of memory in another unit is not the same amount, and a name is for people to choose."""
