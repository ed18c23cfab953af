"""Time behind two small protocols, so that tests can stop it or advance it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring; they count while the machine is suspended."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class Timers(Protocol):
    """Repeated and delayed calls: on the event loop in production, by the fake clock in tests."""

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call every ``seconds`` plus up to ``jitter``; replaces the timer ``name``."""

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces the timer ``name``."""

    def cancel(self, name: str) -> None:
        """Remove the timer ``name``, if there is one."""

    def start(self) -> None:
        """Start all timers."""

    def stop(self) -> None:
        """Stop all timers for good."""


class SystemClock:
    """The clock of the host."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring; they count while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        import asyncio

        await asyncio.sleep(seconds)
