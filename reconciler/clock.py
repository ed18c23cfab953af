"""Time behind two small protocols, so that tests can hold it still or push it on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class Timers(Protocol):
    """Calls at intervals and once later: on the event loop in production, by the fake clock in tests."""

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call again and again, ``seconds`` plus up to ``jitter`` apart; replaces what ``name`` did before."""

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces what ``name`` did before."""

    def cancel(self, name: str) -> None:
        """Forget ``name``; nothing happens where it is not known."""

    def start(self) -> None:
        """Begin to call."""

    def stop(self) -> None:
        """Never call again."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        import asyncio

        await asyncio.sleep(seconds)


def iso(seconds: float) -> str:
    """Seconds since the epoch as ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
