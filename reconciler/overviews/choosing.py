"""Chooses and sorts the entries of lists, the same for every list and every medium."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from reconciler.model.lists.selection import parse_selector, sort_items
from reconciler.overviews.overview import Entries, Listing, Overview


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

    return sort_items(rows, sort, lambda row: json.decode(json.encode(listing.item(row))))
