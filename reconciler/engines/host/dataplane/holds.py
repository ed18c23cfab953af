"""The holds of requests that operators asked for, as times of the monotonic clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from reconciler.bugs import contained
from reconciler.clock import Clock
from reconciler.engines.protocol import EngineEvent
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.times import iso


class HoldTimes:
    """Until when the requests of each workload wait; ``refresh`` reads it from the records."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[Key, tuple[float, float]] = {}
        self._new: dict[Key, float] = {}
        self._dirty = asyncio.Event()

    def refresh(self, records: Records) -> None:
        """Read all current holds. Raises RecordsError.

        A hold that is known already ends when it would have, even if the wall clock was set since.
        """
        ahead = self._clock.monotonic() - self._clock.now()
        known, self._ends = self._ends, {}
        for each in records.traffic_holds.all():
            former = known.get(each.key)
            unchanged = former is not None and former[0] == each.until
            self._ends[each.key] = former if former is not None and unchanged else (each.until, each.until + ahead)
            if not unchanged:
                self._new[each.key] = each.until
                self._dirty.set()

    def end(self, key: Key) -> float:
        """The end of the hold of a workload in monotonic seconds, possibly past; 0 without one."""
        return self._ends.get(key, (0.0, 0.0))[1]

    async def confirm(
        self, synchronize: Callable[[Key], Awaitable[bool]], append_event: Callable[[EngineEvent], None]
    ) -> None:
        """Report each new hold once it is in force, until cancelled.

        ``synchronize`` returns when that is so, with False where the workload is not served.
        """
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            while self._new:
                key, until = self._new.popitem()
                with suppress(EngineError), contained(f"hold of {key}"):
                    if await synchronize(key):
                        message = f"in force: new requests wait until {iso(until)}"
                        append_event(EngineEvent(key, Reason.HOLDING_REQUESTS, message))
