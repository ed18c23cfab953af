"""Many items in batches, for one query, transaction or message each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")

MOST_NAMED = 10
"""The most names that one message lists."""


def iterate_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """``items`` in lists of ``size``, the last one shorter; only one list exists at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def first_of(names: Sequence[str]) -> str:
    """``names`` with commas for a message: at most the first ``MOST_NAMED``, then "and more"."""
    return ", ".join(names[:MOST_NAMED]) + (" and more" if len(names) > MOST_NAMED else "")
