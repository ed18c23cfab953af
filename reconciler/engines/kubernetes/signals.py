"""What the engine of a cluster reports by itself: changes and events; and what it is asked to do again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

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


TRY_SECONDS = 10.0
"""The longest wait for all workloads to be tried; the rest follows later."""


class RefreshRequests:
    """Requests to apply again what is recorded, since its inputs may have changed: many at once are one."""

    def __init__(self) -> None:
        self._due, self._tried = asyncio.Event(), asyncio.Event()
        self._tried.set()

    @property
    def is_due(self) -> bool:
        """Whether there is a request that was not taken."""
        return self._due.is_set()

    def add(self) -> None:
        """Request it."""
        self._tried.clear()
        self._due.set()

    async def take(self) -> None:
        """Return when there is a request, which is the caller's then."""
        await self._due.wait()
        self._due.clear()

    def note_tried(self) -> None:
        """Each workload was tried, unless there is another request already."""
        if not self.is_due:
            self._tried.set()

    async def wait_tried(self) -> None:
        """Return once each workload was tried for the requests so far, or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TRY_SECONDS):
                await self._tried.wait()
