"""Which entries of a list are shown, and in which order: the options of lists, as `reconciler` has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

_TIMES = ("lastModified", "time", "at", "created", "started", "since")
"""The members that say when an entry was, the first one that it has."""

Pages = Iterable[list[Any]]


class ListChoice(NamedTuple):
    """The entries that are shown: by a selector on tags, from a time in seconds since the epoch, sorted by a path.

    Empty values choose all.
    """

    selector: str = ""
    sort: str = ""
    since: float | None = None

    def choose(self, pages: Pages) -> Pages:
        """What is chosen of ``pages``, in the order that is wanted. Raises UsageError."""
        if self == ListChoice():
            return pages
        chosen = self._filter_pages(pages)
        if not self.sort:
            return chosen
        from reconciler.model.lists.selection import sort_items

        return [sort_items(chain.from_iterable(chosen), self.sort, lambda item: item)]

    def _filter_pages(self, pages: Pages) -> Iterator[list[Any]]:
        if not self.selector:
            for page in pages:
                yield [item for item in page if self.is_recent(item)]
            return
        from reconciler.model.lists.selection import parse_selector

        accepts = parse_selector(self.selector)
        for page in pages:
            yield [item for item in page if accepts(item.get("tags") or {}) and self.is_recent(item)]

    def is_recent(self, item: Mapping[str, Any]) -> bool:
        """Whether ``item`` is from the time that was asked for, or later."""
        if self.since is None:
            return True
        from reconciler.times import parse_time

        text = next((str(item[name]) for name in _TIMES if item.get(name)), "")
        try:
            return parse_time(text) >= self.since
        except ValueError:
            return False
