"""Timers of the running daemon: the Timers protocol on APScheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

CHECK = 5.0
"""Seconds between looks at whether the clock was put back."""
NOTICED = 1.0
"""Seconds that it must have been put back by."""


class SchedulerTimers:
    """Calls on the event loop that is running at ``start``; use it from that loop's thread only.

    A call that comes late (a suspended machine, a busy loop) is made once and not once for every time missed. As
    APScheduler goes by the clock on the wall, ``wall`` (seconds since the epoch), all calls are moved along where that
    is put back: they would not be made for as long otherwise, those that feed the watchdog among them.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        )
        self._calls: dict[str, Callable[[], None]] = {}
        self._wall = wall
        self._ahead = 0.0
        self._check: asyncio.TimerHandle | None = None

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call again and again, ``seconds`` plus up to ``jitter`` apart; replaces what ``name`` did before."""
        from apscheduler.triggers.interval import IntervalTrigger

        self._add(name, IntervalTrigger(seconds=seconds, jitter=jitter or None, timezone=UTC), call)

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces what ``name`` did before."""
        from apscheduler.triggers.date import DateTrigger

        def once() -> None:
            del self._calls[name]
            call()

        self._add(name, DateTrigger(datetime.now(UTC) + timedelta(seconds=seconds)), once)

    def cancel(self, name: str) -> None:
        """Forget ``name``; nothing happens where it is not known."""
        if self._calls.pop(name, None) is not None and self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def start(self) -> None:
        """Begin to call. Needs a running event loop."""
        self._scheduler.start()
        self._ahead = self._wall() - time.monotonic()
        self._check = asyncio.get_running_loop().call_later(CHECK, self._follow_the_clock)

    def stop(self) -> None:
        """Never call again."""
        self._calls.clear()
        if self._check is not None:
            self._check.cancel()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _follow_the_clock(self) -> None:
        ahead = self._wall() - time.monotonic()
        if ahead < self._ahead - NOTICED:
            for job in self._scheduler.get_jobs():
                job.modify(next_run_time=job.next_run_time + timedelta(seconds=ahead - self._ahead))
        self._ahead = ahead
        self._check = asyncio.get_running_loop().call_later(CHECK, self._follow_the_clock)

    def _add(self, name: str, trigger: object, call: Callable[[], None]) -> None:
        self._calls[name] = call
        self._scheduler.add_job(self._fire, trigger, args=(name, call), id=name, replace_existing=True)

    # A coroutine, since APScheduler hands plain functions to a thread.
    async def _fire(self, name: str, call: Callable[[], None]) -> None:
        if self._calls.get(name) is call:
            call()
