"""Completes a query that somebody types: targets, labels and values of streams, and what may follow them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.logql.query import LABELS

Labels = Mapping[str, str]
MOST_COMPLETIONS = 20
_MATCHER = re.compile(r'([A-Za-z_]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_OPEN_VALUE = re.compile(r"([A-Za-z_]+)\s*(?:=~|!=|!~|=)\s*$")
_OPEN_LABEL = re.compile(r"[{,]\s*([A-Za-z_]*)$")
_FILTERS = (
    (' |= "', "lines with a text"),
    (' != "', "lines without a text"),
    (' |~ "', "lines that match an expression"),
    (' !~ "', "lines that do not match it"),
    (" | json", "labels from lines in JSON"),
    (" | logfmt", "labels from key=value"),
)
"""What may follow the braces, and what it selects."""


class Completion(NamedTuple):
    """What ``text`` before the caret becomes, what a list shows of it, and what it means."""

    text: str
    label: str
    meaning: str = ""


class _OpenSelector(NamedTuple):
    """The end of a text in braces: where its last quote or its closing brace is, -1 for neither."""

    quote: int
    brace: int


def complete_query(text: str, streams: Sequence[Labels]) -> list[Completion]:
    """What may follow ``text``, the query up to the caret, by the labels of ``streams``; at most MOST_COMPLETIONS."""
    found = _complete_selector(text, streams) if text.lstrip().startswith("{") else _complete_target(text, streams)
    return [one for one in dict.fromkeys(found) if one.text != text][:MOST_COMPLETIONS]


def _complete_target(text: str, streams: Sequence[Labels]) -> Iterator[Completion]:
    workloads = {f"workload/{stream['gvc']}/{stream['workload']}" for stream in streams}
    targets = workloads | {f"gvc/{stream['gvc']}" for stream in streams}
    for target in _select_words(targets, text.strip()):
        yield Completion(target, target)
    if not text.strip():
        yield Completion("{", "{", "streams by their labels")


def _select_words(words: Iterable[str], part: str) -> list[str]:
    """``words`` with ``part`` in them: first those that begin so."""
    wanted = part.casefold()
    found = [word for word in words if wanted in word.casefold()]
    return sorted(found, key=lambda word: (not word.casefold().startswith(wanted), word))


def _complete_selector(text: str, streams: Sequence[Labels]) -> Iterator[Completion]:
    quote, brace = _find_end(text)
    if brace >= 0:
        return _complete_filter(text, text[brace + 1 :])
    if quote >= 0:
        return _complete_value(text[:quote], text[quote + 1 :], streams)
    if _OPEN_VALUE.search(text):
        return _complete_value(text, "", streams)
    if label := _OPEN_LABEL.search(text):
        return _complete_label(text[: label.start(1)], label[1])
    return iter((Completion(f"{text}}}", "}", "all of these streams"), Completion(f"{text}, ", ",", "another label")))


def _find_end(text: str) -> _OpenSelector:
    quote, is_escaped = -1, False
    for index, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\" and quote >= 0:
            is_escaped = True
        elif character == '"':
            quote = index if quote < 0 else -1
        elif character == "}" and quote < 0:
            return _OpenSelector(-1, index)
    return _OpenSelector(quote, -1)


def _complete_filter(text: str, after: str) -> Iterator[Completion]:
    if after.strip():
        return
    for words, meaning in _FILTERS:
        yield Completion(f"{text.rstrip()}{words}", words.strip(), meaning)


def _complete_label(before: str, part: str) -> Iterator[Completion]:
    taken = {name for name, _ in _MATCHER.findall(before)}
    for name in _select_words(set(LABELS) - taken, part):
        yield Completion(f'{before}{name}="', name, "label")


def _complete_value(before: str, part: str, streams: Sequence[Labels]) -> Iterator[Completion]:
    """Values of the label at the end of ``before``, of streams that have the other labels as they are known."""
    open_value = _OPEN_VALUE.search(before)
    if open_value is None:
        return
    name, labels = open_value[1], dict(_MATCHER.findall(before))
    values = {
        stream[name]
        for stream in streams
        if name in stream and all(stream.get(other) == value for other, value in labels.items())
    }
    for value in _select_words(values, part):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        yield Completion(f'{before}"{quoted}"', value, name)
