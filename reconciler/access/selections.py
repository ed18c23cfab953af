"""Which resources the queries of policies select: found once, then kept up to date by the changes of resources.

Without this, a page for a caller with such a policy would read the whole collection.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from reconciler.access.rules import Grant
from reconciler.model.key import Kind
from reconciler.model.record import Record
from reconciler.records.sql import prefix_range
from reconciler.records.store import Records

MOST_KEYS = 200_000
"""The keys of all queries that are remembered, about 20 MB; the least recently used queries are forgotten first."""


class _Selection:
    """The keys that one query selects, in order, as of the change ``position``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.position = -1
        self.keys: list[str] = []

    def update(self, records: Records, grant: Grant) -> None:
        """Take over the changes since the last update."""
        newest = records.changes.newest()
        if self.position < 0 or not records.changes.has_all_after(self.position):
            self.keys = _select_keys(grant, records.applied.items(grant.kind))
        elif changed := records.changes.list_edited(self.position, (grant.kind,)):
            many = records.applied.get_many(changed)
            former = set(self.keys).difference(changed)
            self.keys = sorted(former.union(_select_keys(grant, (records[0] for records in many.values()))))
        self.position = newest


class Selections:
    """The keys that queries of grants select. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[Kind, bytes], _Selection] = OrderedDict()

    def keys_after(self, records: Records, grant: Grant, prefix: str, after: str, limit: int) -> Sequence[str]:
        """At most ``limit`` keys after ``after`` that begin with ``prefix`` and that the query of ``grant`` selects."""
        name = grant.kind, msgspec.json.encode(grant.query, order="deterministic")
        with self._lock:
            selection = self._found.setdefault(name, _Selection())
            self._found.move_to_end(name)
        with selection.lock:
            # A reader in a snapshot may be behind another one: what has changed since is left out.
            if selection.position < records.changes.newest():
                selection.update(records, grant)
            keys = selection.keys
        self._forget()
        return select_keys_after(keys, prefix, after, limit)

    def _forget(self) -> None:
        with self._lock:
            while sum(len(selection.keys) for selection in self._found.values()) > MOST_KEYS:
                self._found.popitem(last=False)


def select_keys_after(keys: Sequence[str], prefix: str, after: str, limit: int) -> Sequence[str]:
    """At most ``limit`` of the sorted ``keys`` that begin with ``prefix`` and follow ``after``."""
    low, high = prefix_range(prefix)
    start = max(bisect_left(keys, low), bisect_right(keys, after))
    return keys[start : min(start + limit, bisect_left(keys, high))]


def _select_keys(grant: Grant, records: Iterable[Record]) -> list[str]:
    return sorted({str(record.key) for record in records if grant.selects(msgspec.json.decode(record.body))})
