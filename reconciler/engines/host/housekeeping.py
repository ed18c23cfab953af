"""Periodic work of a location, independent of its workloads: collects logs and checks the clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from reconciler.bugs import contain_bugs
from reconciler.clock import HOLD, JUMP, Clock
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.signals import LocationSignals
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.times import ExpiryTime

COLLECT = 0.5
"""Seconds between two collections of container output."""


MOST_NAMED = 5
"""The most replicas that a report names."""
DROPS = 60.0
"""Seconds between two reports of output that was dropped."""

_CONSEQUENCES = (
    "waits and probes do not depend on it, schedules go on from the new time and run no time again, and nothing "
    "that was there expires before it has held for an hour"
)


def _jump_message(seconds: float) -> str:
    return f"the clock of this host was set by {seconds:+.0f} s; {_CONSEQUENCES}"


class Housekeeping(LocationPart):
    """``epoch`` is the wall clock minus the monotonic clock, in seconds, since the clock was last set.

    ``take_events`` is that of the runtime. A wait does not end earlier because the clock was set or the machine
    suspended, so this is a signal.
    """

    def __init__(
        self,
        collector: Collector,
        clock: Clock,
        location: str,
        signals: LocationSignals,
        take_events: Callable[[], list[tuple[Reason, str]]] = list,
    ) -> None:
        self._take_events = take_events
        self._collector = collector
        self._clock = clock
        self._key = Key(Kind.LOCATION, "", location)
        self._signals = signals
        self.epoch = clock.now() - clock.monotonic()
        self.clock_jumped = ""
        """How the clock was set within the last hour; "" if it was not."""
        self._since = 0.0
        self._is_new = True
        self._next_report = clock.monotonic()

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Collects logs and checks the clock; each new failure to store logs is reported once."""
        return (self.run(),)

    async def run(self) -> None:
        """Work until cancelled."""
        trouble = ""
        while True:
            behind = False
            with contain_bugs(f"logs of {self._key}"):
                done = await self._collector.collect()
                if done.trouble and done.trouble != trouble:
                    self._signals.report(self._key, Reason.LOG_STORAGE_FAILED, done.trouble)
                trouble, behind = done.trouble, done.behind
                self._report_dropped()
                self._report_expired()
            for reason, message in self._take_events():
                self._signals.report(self._key, reason, message)
            self.check_clock()
            before = self._clock.now()
            await self._clock.sleep(0.0 if behind else COLLECT)
            if abs(self._clock.now() - before) > JUMP:
                self._signals.clock_set()

    def _report_dropped(self) -> None:
        """Report output that was dropped, at once and then once a minute."""
        now = self._clock.monotonic()
        if now < self._next_report or not (dropped := self._collector.take_dropped()):
            return
        self._next_report = now + DROPS
        for container_id, size in dropped:
            replica, container = container_id.replica, container_id.container
            text = f"{replica}: {size / (1 << 20):.0f} MiB of the output of {container} are dropped"
            message = f"{text}: it writes faster than they can be stored"
            self._signals.report(container_id.key, Reason.OUTPUT_DROPPED, message)

    def _report_expired(self) -> None:
        for key, replicas in self._collector.take_expired().items():
            named = ", ".join(sorted(replicas)[:MOST_NAMED]) + (", …" if len(replicas) > MOST_NAMED else "")
            message = f"the logs of removed replicas were deleted, since their time is over: {named}"
            self._signals.report(key, Reason.LOGS_EXPIRED, message)

    def _take_over(self, expiry: ExpiryTime) -> None:
        """Go on from a jump that an earlier daemon has seen, or that happened while no daemon ran."""
        if not expiry.jump:
            return
        passed = max(expiry.now - expiry.since, 0.0)
        self.clock_jumped = _jump_message(expiry.jump)
        self._since = self._clock.monotonic() - passed
        if expiry.is_new:
            self._signals.report(self._key, Reason.CLOCK_JUMPED, self.clock_jumped)

    def check_clock(self) -> None:
        """Report when the wall clock was set. All waits use the monotonic clock, so none depends on it."""
        expiry = self._clock.expiry()  # which is to see every change
        if self._is_new:
            self._is_new = False
            self._take_over(expiry)
        epoch = self._clock.now() - self._clock.monotonic()
        if abs(epoch - self.epoch) > JUMP:
            message = _jump_message(epoch - self.epoch)
            self.epoch, self.clock_jumped, self._since = epoch, message, self._clock.monotonic()
            self._signals.report(self._key, Reason.CLOCK_JUMPED, message)
        elif self.clock_jumped and self._clock.monotonic() - self._since >= HOLD:
            self.clock_jumped = ""
            self._signals.report(self._key, Reason.CLOCK_STABLE, "the clock of this host was not set for an hour")
