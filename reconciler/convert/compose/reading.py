"""Reads compose files: YAML in which `no` and `0440` are texts, and `!reset` and `!override` direct merges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.documents.locator import Locator
from reconciler.documents.positions import Position
from reconciler.documents.reader import parse_documents
from reconciler.documents.types import Document, unreadable_paths
from reconciler.model.finding import Fault, Finding, Pointer

RESET, OVERRIDE = "!reset", "!override"
_AMBIGUOUS, _TAG = "ambiguous-scalar", "unknown-tag"
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class ComposeDocument(NamedTuple):
    """The document at ``position`` of a compose file; ``directives`` are those tags in it that direct merges."""

    path: str
    position: int
    value: Any
    directives: dict[Pointer, str]


def read_compose(path: str, raw: bytes) -> tuple[list[ComposeDocument], list[Finding]]:
    """The documents of a compose file, and findings for what is unreadable; no content makes it raise."""
    reading = parse_documents(raw)
    tags: dict[Position, str] = {}
    locator = Locator(raw)
    if any(fault.rule == _TAG for fault in reading.faults):
        plain, tags = _without_tags(raw, reading.faults)
        reading = parse_documents(plain) if tags else reading
    faults, documents = {(fault.line, fault.column, fault.rule): fault for fault in reading.faults}, []
    for document in sorted([*reading.documents, *reading.partial], key=lambda entry: entry.index):
        value = _with_texts(document, locator, faults)
        directives = {at: tags[pointer] for at, pointer in _list_places(document, locator, tags) if pointer in tags}
        documents.append(ComposeDocument(path, document.index, value, directives))
    if faults:
        return [], [Finding.at(path, fault) for fault in faults.values()]
    return documents, []


def _without_tags(raw: bytes, faults: list[Fault]) -> tuple[bytes, dict[Position, str]]:
    """``raw`` with spaces in place of the tags of compose, and those tags by position."""
    text = raw.decode("utf-8-sig")
    starts = [0, *(match.end() for match in _BREAK.finditer(text))]
    tags: dict[Position, str] = {}
    for fault in faults:
        at = starts[fault.line - 1] + fault.column - 1
        tag = next((tag for tag in (RESET, OVERRIDE) if text.startswith(tag, at)), "")
        if fault.rule == _TAG and tag and not text[at + len(tag) : at + len(tag) + 1].strip():
            tags[fault.line, fault.column] = tag
            text = f"{text[:at]}{' ' * len(tag)}{text[at + len(tag) :]}"
    return text.encode(), tags


def _with_texts(document: Document, locator: Locator, faults: dict[tuple[int, int, str], Fault]) -> Any:
    """The value of ``document`` with ambiguous scalars as written; their faults are removed."""
    texts: dict[str, str] = {}
    for at in unreadable_paths(document.value):
        places = locator.of(document.index)
        written, fault = places.written_text(at), (*places.value(at), _AMBIGUOUS)
        if written is not None and fault in faults:
            del faults[fault]
            texts[_get_value_at(document.value, at)] = written
    return _replace_markers(document.value, texts) if texts else document.value


def _get_value_at(value: Any, at: Pointer) -> Any:
    for step in at:
        value = value[step]
    return value


def _replace_markers(value: Any, texts: dict[str, str]) -> Any:
    """A copy of ``value`` without the marks that ``texts`` has; an alias repeats the mark of its anchor."""
    if isinstance(value, dict):
        return {key: _replace_markers(member, texts) for key, member in value.items()}
    if isinstance(value, list):
        return [_replace_markers(item, texts) for item in value]
    return texts.get(value, value) if isinstance(value, str) else value


def _list_places(document: Document, locator: Locator, tags: dict[Position, str]) -> Iterator[tuple[Pointer, Position]]:
    if not tags:
        return
    places = locator.of(document.index)
    waiting: list[tuple[Pointer, Any]] = [((), document.value)]
    while waiting:
        at, value = waiting.pop()
        yield at, places.value(at)
        steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [((*at, step), member) for step, member in steps]
