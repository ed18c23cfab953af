"""Many in; as many at a time as are worth one question, one transaction or one message, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """``items`` in lists of ``size``, the last one shorter; never more than one list of them is held here."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
