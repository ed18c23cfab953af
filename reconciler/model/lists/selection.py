"""Chooses and sorts what lists have: by selectors on tags, and by the value at a path.

Selectors are those of kubectl on labels: ``team=shop,!draft,stage in (test,live)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from reconciler.errors import UsageError

_Row = TypeVar("_Row")

SELECTORS = "k=v, k!=v, k, !k, k in (a,b), k notin (a,b), separated by commas"
"""What a selector is made of, for messages."""
_MOST_LENGTH = 1000
"""The most characters of a selector: anybody who may read can send one to the API."""
_COMMAS = re.compile(r",(?![^()]*\))")
_NAME = r"([^\s=!,()]+)"
_EQUALITY = re.compile(rf"{_NAME}\s*(!=|==?)\s*([^\s=!,()]*)")
_SET = re.compile(rf"{_NAME}\s+(in|notin)\s*\(([^()]*)\)")
_PRESENCE = re.compile(rf"(!?)\s*{_NAME}")


def sort_items(rows: Iterable[_Row], sort: str, make_item: Callable[[_Row], Mapping[str, Any]]) -> list[_Row]:
    """``rows`` by the value at the path ``sort`` of what ``make_item`` returns; those without one come first.

    A "-" before the path turns the order round. Raises UsageError.
    """
    from reconciler.model.lists.jsonpath import parse_path

    is_reversed = sort.startswith("-")
    try:
        path = parse_path(sort.removeprefix("-"))
    except ValueError as error:
        raise UsageError(f"--sort-by: {error}") from None
    ranked: list[tuple[tuple[int, Any], _Row]] = []
    present: dict[str, Any] = {}
    has_value = False
    for row in rows:
        item = make_item(row)
        values = path.find(item)
        has_value = has_value or bool(values)
        present |= item
        ranked.append((_make_sort_key(values), row))
    if ranked and not has_value:
        raise UsageError(f"--sort-by: {path.explain_missing(present)}")
    return [row for _, row in sorted(ranked, key=itemgetter(0), reverse=is_reversed)]


def _make_sort_key(values: list[Any]) -> tuple[int, Any]:
    """What sorts by the first of ``values``: nothing, numbers, texts, anything else by its JSON."""
    from reconciler.model.lists.jsonpath import text_of

    value = values[0] if values else None
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, text_of(value))


class _Requirement(NamedTuple):
    """One requirement: whether the tag ``name`` has one of ``values``, or (None) is there at all, is as ``wanted``."""

    name: str
    values: frozenset[str] | None
    wanted: bool

    def accepts(self, tags: Mapping[str, Any]) -> bool:
        """Whether ``tags`` are so; a tag that is missing has no value."""
        is_there = self.name in tags
        return (is_there and (self.values is None or _text_of(tags[self.name]) in self.values)) is self.wanted


def parse_selector(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether tags fit the selector ``text``. Raises UsageError that shows what there is."""
    if len(text) > _MOST_LENGTH:
        raise UsageError(f"the selector has {len(text):,} characters; {_MOST_LENGTH:,} are the most")
    requirements = [_parse_requirement(part.strip(), text) for part in _COMMAS.split(text)]
    return lambda tags: all(requirement.accepts(tags) for requirement in requirements)


def _parse_requirement(part: str, text: str) -> _Requirement:
    if match := _SET.fullmatch(part):
        return _Requirement(match[1], frozenset(map(str.strip, match[3].split(","))), match[2] == "in")
    if match := _EQUALITY.fullmatch(part):
        return _Requirement(match[1], frozenset((match[3],)), match[2] != "!=")
    if match := _PRESENCE.fullmatch(part):
        return _Requirement(match[2], None, not match[1])
    where = f" in {text!r}" if part != text else ""
    raise UsageError(f"{part!r}{where} is no selector of tags; write {SELECTORS}")


def _text_of(value: Any) -> str:
    """A value of a tag as it is written in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
