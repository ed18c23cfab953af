"""Many in; as many at a time as are worth one question, one transaction or one message, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")

MOST_NAMED = 10
"""Names that one message lists."""


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """``items`` in lists of ``size``, the last one shorter; never more than one list of them is held here."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def first_of(names: Sequence[str]) -> str:
    """``names`` with commas between them, for a message; of many the first ``MOST_NAMED`` and that there are more."""
    return ", ".join(names[:MOST_NAMED]) + (" and more" if len(names) > MOST_NAMED else "")
