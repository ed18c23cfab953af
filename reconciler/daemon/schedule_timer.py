"""Wakes the daemon when executions of recorded cron workloads are due, and has them recorded."""

from __future__ import annotations

from functools import partial

from reconciler.clock import Clock, Timers
from reconciler.daemon.wake import WakeQueue
from reconciler.engines.protocol import SupportsExecutions
from reconciler.pipeline.runner import Runner

SCHEDULES = "/schedules"
"""Wake-up name, in place of a source (whose name has no slash), that records what is due."""

CHECK_SECONDS = 60.0
"""The longest wait: the wall clock of a schedule can be set, and timers stand still while the machine is suspended."""


class ScheduleTimer:
    """Adds a wake-up to ``wakes`` for the next due time."""

    def __init__(self, runner: Runner, clock: Clock, timers: Timers, wakes: WakeQueue) -> None:
        engines = runner.drift_monitor.engines.values()
        self._engines = [engine for engine in engines if isinstance(engine, SupportsExecutions)]
        self._clock = clock
        self._timers = timers
        self._wakes = wakes

    def record_due(self) -> None:
        """Record what is due. Raises RecordsError."""
        for engine in self._engines:
            engine.record_due()
        due = [at for engine in self._engines if (at := engine.next_due()) is not None]
        if due:
            wait = min(max(min(due) - self._clock.now(), 0.0), CHECK_SECONDS)
            self._timers.after("schedules", wait, partial(self._wakes.add, SCHEDULES, "schedule"))
