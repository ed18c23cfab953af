"""Many items: in batches, for one query, transaction or message each, and with the progress of their work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import NamedTuple, TypeVar

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


class Progress(NamedTuple):
    """How far a work is: what is done of ``total``, such as 300 of 10,000 `manifests`."""

    what: str
    done: int
    total: int


_reporter: ContextVar[Callable[[Progress], None] | None] = ContextVar("reporter", default=None)


@contextmanager
def report_progress_to(report: Callable[[Progress], None]) -> Iterator[None]:
    """Let ``report`` hear of the progress of long works in the block, often: after each item."""
    token = _reporter.set(report)
    try:
        yield
    finally:
        _reporter.reset(token)


def find_reporter() -> Callable[[Progress], None] | None:
    """What hears of progress here; None where nothing does."""
    return _reporter.get()


def track_items(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """``items``, of which each that is passed on counts as done once the next one is asked for."""
    report = _reporter.get()
    if report is None or not total:
        yield from items
        return
    report(Progress(what, 0, total))
    for done, item in enumerate(items, 1):
        yield item
        report(Progress(what, done, total))
