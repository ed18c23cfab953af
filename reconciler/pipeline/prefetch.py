"""What rules are about to ask of the records, read together: one by one, each answer costs four times as much."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry

MOST = 4096
"""Keys read ahead at once: their files take about 10 MB."""


class Prefetch:
    """The index and the document cache as they were when asked for first; whoever changes them makes another one."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._entries: dict[str, Entry | None] = {}
        self._blobs: frozenset[str] = frozenset()
        self._packed: dict[str, bytes] | None = None

    def fetch(self, keys: Iterable[str]) -> None:
        """Read where ``keys`` are desired, in place of what was expected before; their files once one is asked for."""
        wanted = list(keys)[:MOST]
        found = self._records.desired.get_many(wanted)
        self._entries = {key: found.get(key) for key in wanted}
        self._blobs = frozenset(entry.blob for entry in found.values())
        self._packed = None

    def entry(self, key: str) -> Entry | None:
        """Where ``key`` is desired; None where it is not."""
        return self._entries[key] if key in self._entries else self._records.desired.get(key)

    def packed(self, blob: str) -> bytes | None:
        """What was decoded of the file ``blob``; None where that is not remembered."""
        if blob not in self._blobs:
            return self._records.documents.get(blob)
        if self._packed is None:
            self._packed = self._records.documents.get_many(self._blobs)
        return self._packed.get(blob)
