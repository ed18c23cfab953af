"""Chooses and sorts the entries of lists, the same for every list and every medium.

Selectors on tags are those of kubectl on labels: ``team=shop,!draft,stage in (test,live)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from reconciler.errors import UsageError
from reconciler.overviews.overview import Entries, Listing, Overview

SELECTORS = "k=v, k!=v, k, !k, k in (a,b), k notin (a,b), separated by commas"
"""What a selector is made of, for messages."""
_MOST_LENGTH = 1000
"""The most characters of a selector: anybody who may read can send one to the API."""
_COMMAS = re.compile(r",(?![^()]*\))")
_NAME = r"([^\s=!,()]+)"
_EQUALITY = re.compile(rf"{_NAME}\s*(!=|==?)\s*([^\s=!,()]*)")
_SET = re.compile(rf"{_NAME}\s+(in|notin)\s*\(([^()]*)\)")
_PRESENCE = re.compile(rf"(!?)\s*{_NAME}")


class Choice(NamedTuple):
    """Which entries are shown: by a selector on tags, from a time in seconds since the epoch, sorted by a path, and at
    most ``limit`` of them; empty values choose all."""

    selector: str = ""
    sort: str = ""
    limit: int | None = None
    since: float | None = None


def take_choice(parameters: dict[str, Any]) -> Choice:
    """The choice in ``parameters``, which are without it afterwards."""
    named = {name: parameters.pop(name) for name in Choice._fields if name in parameters}
    return Choice(**{name: value for name, value in named.items() if value})


def choose_entries(overview: Overview, entries: Entries, choice: Choice) -> Entries:
    """The ``entries`` that are chosen, in the order that is wanted. Raises UsageError."""
    listing = overview.listing
    if listing is None or choice == Choice():
        return entries
    rows: Iterable[Any] = entries.rows
    if choice.selector:
        rows = _select_rows(listing, entries, choice.selector)
    if choice.since is not None:
        rows = _list_since(listing, rows, entries, choice.since)
    if choice.sort:
        rows = _sort_rows(listing, rows, choice.sort)
    # A limit applies to what is chosen; a list is as quick as its first entries.
    return entries._replace(rows=rows if choice.limit is None else islice(rows, choice.limit))


def _select_rows(listing: Listing, entries: Entries, selector: str) -> Iterable[Any]:
    accepts, read_tags = parse_selector(selector), listing.read_tags
    assert read_tags is not None
    return (row for row in entries.rows if accepts(read_tags(entries.context, row)))


def _list_since(listing: Listing, rows: Iterable[Any], entries: Entries, since: float) -> Iterable[Any]:
    read_time = listing.read_time
    assert read_time is not None
    return (row for row in rows if (at := read_time(entries.context, row)) is not None and at >= since)


def _sort_rows(listing: Listing, rows: Iterable[Any], sort: str) -> list[Any]:
    """``rows`` by the value at the path ``sort``; those without one come first. Raises UsageError."""
    from msgspec import json

    from reconciler.render.jsonpath import parse_path

    is_reversed = sort.startswith("-")
    try:
        path = parse_path(sort.removeprefix("-"))
    except ValueError as error:
        raise UsageError(f"--sort-by: {error}") from None
    ranked: list[tuple[tuple[int, Any], Any]] = []
    present: dict[str, Any] = {}
    has_value = False
    for row in rows:
        item = json.decode(json.encode(listing.item(row)))
        values = path.find(item)
        has_value = has_value or bool(values)
        present |= item
        ranked.append((_make_sort_key(values), row))
    if ranked and not has_value:
        raise UsageError(f"--sort-by: {path.explain_missing(present)}")
    return [row for _, row in sorted(ranked, key=itemgetter(0), reverse=is_reversed)]


def _make_sort_key(values: list[Any]) -> tuple[int, Any]:
    """What sorts by the first of ``values``: nothing, numbers, texts, anything else by its JSON."""
    from reconciler.render.jsonpath import text_of

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
