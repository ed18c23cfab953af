"""The holds of requests that operators asked for, as times of the monotonic clock."""

from __future__ import annotations

from reconciler.clock import Clock
from reconciler.model.key import Key
from reconciler.records.store import Records


class HoldTimes:
    """Until when the requests of each workload wait; ``refresh`` reads it from the records."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[Key, tuple[float, float]] = {}

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

    def end(self, key: Key) -> float:
        """The end of the hold of a workload in monotonic seconds, possibly past; 0 without one."""
        return self._ends.get(key, (0.0, 0.0))[1]
