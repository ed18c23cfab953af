"""What the engine of a cluster reports by itself: which observations may differ, and events that no step caused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from reconciler.clock import Clock
from reconciler.engines.protocol import EngineEvent
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

GATHER_SECONDS = 0.05
"""Seconds for which changes are collected before they are reported: a rollout changes many objects at once."""
BUSY_GATHER_SECONDS = 0.25
"""The same while changes do not end: what is observed together takes less."""
MAX_EVENTS = 1000
"""Limit of events that wait to be taken."""


class EngineSignals:
    """Collects changes and events until they are taken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[EngineEvent] = deque(maxlen=MAX_EVENTS)
        self._change = asyncio.Event()
        self._changed: set[Key] = set()
        self._all_changed = False

    def report_change(self, key: Key | None) -> None:
        """Report that an observation of ``key``, or (None) of anything, may differ from the last one."""
        if key is None or key.kind not in (Kind.WORKLOAD, Kind.VOLUMESET):
            self._all_changed = self._all_changed or key is None
        else:
            self._changed.add(key)
        self._change.set()

    async def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields the resources that have changed; empty: anything has."""
        reported = float("-inf")
        while True:
            await self._change.wait()
            busy = self._clock.monotonic() - reported < BUSY_GATHER_SECONDS
            await self._clock.sleep(BUSY_GATHER_SECONDS if busy else GATHER_SECONDS)
            reported = self._clock.monotonic()
            self._change.clear()
            keys = frozenset() if self._all_changed else frozenset(self._changed)
            due = self._all_changed or bool(keys)
            self._changed.clear()
            self._all_changed = False
            if due:
                yield keys

    def add_event(self, key: Key, reason: Reason, message: str) -> None:
        """Report an event about ``key``."""
        self._events.append(EngineEvent(key, reason, message))

    def take_events(self) -> list[EngineEvent]:
        """The events since the last call."""
        events = list(self._events)
        self._events.clear()
        return events
