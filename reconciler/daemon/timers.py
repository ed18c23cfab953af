"""Timers of the daemon, on APScheduler. They use the monotonic clock, so setting the clock moves none."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import STATE_RUNNING
from apscheduler.triggers.base import BaseTrigger

from reconciler.bugs import contain_bugs

_SHORTEST = 0.001
"""The shortest interval in seconds: APScheduler would compute one of 0 for ever."""
_LONGEST = 1e9
"""The longest wait in seconds, since a date has at most 9,999 years."""

_NO_TIME = timedelta()
_START = datetime(2000, 1, 1)  # noqa: DTZ001 - no time zone is asked for it


class _MonotonicZone(tzinfo):
    """A time zone whose clocks show the monotonic seconds. APScheduler asks for the time in its zone, and for no other.

    So it never learns that somebody set the wall clock, and it computes nothing for the time that was skipped.
    """

    def fromutc(self, _utc: datetime, /) -> datetime:
        return _START.replace(tzinfo=self) + timedelta(seconds=time.monotonic())

    def utcoffset(self, _local: datetime | None, /) -> timedelta:
        return _NO_TIME

    def dst(self, _local: datetime | None, /) -> timedelta:
        return _NO_TIME

    def tzname(self, _local: datetime | None, /) -> str:
        return "monotonic"


class _FromNow(BaseTrigger):  # type: ignore[misc] # APScheduler has no types
    """Is due some seconds from now, and never from the time before: many missed calls cost as much as one."""

    def __init__(self, seconds: float, jitter: float, repeats: bool) -> None:
        self._seconds = seconds
        self._jitter = jitter
        self.repeats = repeats

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        if previous_fire_time is not None and not self.repeats:
            return None
        wait = self._seconds + random.uniform(0.0, self._jitter)
        return now + timedelta(seconds=min(max(wait, _SHORTEST if self.repeats else 0.0), _LONGEST))


class _LoopExecutor(BaseExecutor):  # type: ignore[misc] # APScheduler has no types
    """Makes the calls on the event loop itself. APScheduler's own uses a thread, or a task for each call."""

    def _do_submit_job(self, job: Job, _run_times: list[datetime]) -> None:
        asyncio.get_running_loop().call_soon(self._make_call, job)

    def _make_call(self, job: Job) -> None:
        # It counts as ended before, since the call may set the same timer again.
        self._run_job_success(job.id, ())
        job.func(*job.args)


class SchedulerTimers:
    """Calls on the event loop that runs at ``start``; use it from that loop's thread only.

    The interval counts from the last call: one call replaces all missed ones (a stopped process, a busy loop, a
    suspended machine). A call that raises is logged, and made again when it is next due.
    """

    def __init__(self) -> None:
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        executors = {"default": _LoopExecutor()}
        self._scheduler = AsyncIOScheduler(timezone=_MonotonicZone(), executors=executors, job_defaults=defaults)
        self._triggers: dict[str, _FromNow] = {}

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call repeatedly, ``seconds`` plus up to ``jitter`` apart; replaces an earlier timer ``name``."""
        self._add(name, _FromNow(seconds, jitter, repeats=True), call)

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces an earlier timer ``name``."""
        self._add(name, _FromNow(seconds, 0.0, repeats=False), call)

    def cancel(self, name: str) -> None:
        """Remove the timer ``name``; does nothing if it does not exist."""
        self._triggers.pop(name, None)
        if self._scheduler.get_job(name) is not None:
            self._scheduler.remove_job(name)

    def start(self) -> None:
        """Start all timers. Needs a running event loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """Cancel all timers."""
        self._triggers.clear()
        if self._scheduler.state == STATE_RUNNING:
            # The shutdown comes with the next turn of the loop; nothing is due until then.
            self._scheduler.pause()
            self._scheduler.shutdown(wait=False)

    def _add(self, name: str, trigger: _FromNow, call: Callable[[], None]) -> None:
        self.cancel(name)
        self._triggers[name] = trigger
        self._scheduler.add_job(self._fire, trigger, (name, trigger, call), id=name)

    def _fire(self, name: str, trigger: _FromNow, call: Callable[[], None]) -> None:
        # A call that was made just before may have replaced or cancelled this one.
        if self._triggers.get(name) is not trigger:
            return
        if not trigger.repeats:
            del self._triggers[name]
        with contain_bugs(f"timer {name}"):
            call()
