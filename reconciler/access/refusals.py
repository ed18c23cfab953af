"""Refusals in the audit log: each has an entry, and in a flood their number has one, so that it fills no disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from reconciler.access.store import AuditEntry

WINDOW = 60.0
"""Seconds after which counts become entries."""
MOST_OF_SOURCE = 60
"""Refusals of one source within ``WINDOW`` that have entries of their own; a source is a caller or a network."""
MOST = 300
"""Those of all sources; also the sources that are counted apart."""


class Refusals:
    """Passes entries to ``append``; ``now`` is monotonic. What is only counted yet is lost with the process."""

    def __init__(self, append: Callable[[Iterable[AuditEntry]], None], now: Callable[[], float]) -> None:
        self._append = append
        self._now = now
        self._began = now()
        self._appended = 0
        self._sources: Counter[str] = Counter()
        self._counted: dict[tuple[str, int], AuditEntry] = {}

    def add(self, entry: AuditEntry, source: str) -> None:
        """Append the refusal ``entry`` of ``source``, or count it."""
        self.flush()
        if source not in self._sources and len(self._sources) >= MOST:
            source = ""
        self._sources[source] += 1
        if self._sources[source] <= MOST_OF_SOURCE and self._appended < MOST:
            self._append([entry])
            self._appended += 1
            return
        name = source, entry.outcome
        count = self._counted[name].count + 1 if name in self._counted else 1
        self._counted[name] = msgspec.structs.replace(entry, count=count)

    def flush(self, *, now: bool = False) -> None:
        """Append the counts once the window is over, or ``now``."""
        if not now and self._now() - self._began < WINDOW:
            return
        if self._counted:
            self._append(self._counted.values())
        self._counted.clear()
        self._sources.clear()
        self._appended = 0
        self._began = self._now()
