"""A clock and timers that stand still until a test pushes them on."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import msgspec

from reconciler.clock import SeenTime
from reconciler.times import ExpiryTime

START = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""

TURNS = 25
"""Turns of the event loop that woken tasks get before time goes on."""


class _Timer(msgspec.Struct):
    due: float
    period: float
    call: Callable[[], None]


class FakeClock:
    """Both protocols of reconciler.clock. ``slept`` lists every sleep asked for, in seconds, and
    ``started`` is when the program has looked at it first, in monotonic seconds.

    With ``auto`` a sleep takes no real time at all: the clock jumps to its end and goes on.
    """

    def __init__(self, now: float = START, *, auto: bool = False) -> None:
        self._start = now
        self._seen = SeenTime("", now, now)
        self.started = 0.0
        self._passed = 0.0
        self._auto = auto
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timers: dict[str, _Timer] = {}
        self._running = False
        self.slept: list[float] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._passed

    def jump(self, seconds: float) -> None:
        """Set the time of day forward, or back, as a correction of the clock does; timers do not notice."""
        self.expiry()
        self.set(seconds)
        self.expiry()

    def set(self, seconds: float) -> None:
        """As ``jump``, while no program looks at it."""
        self._start += seconds

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: time passes, and no sleep ends earlier for it."""
        self._passed += seconds
        self._sleepers = [(due + seconds, order, woken) for due, order, woken in self._sleepers]
        for timer in self._timers.values():
            timer.due += seconds

    def block(self, seconds: float) -> None:
        """Let time pass for everybody at once, as a call that blocks does."""
        self._passed += seconds

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed

    def expiry(self) -> ExpiryTime:
        """The time by which things expire."""
        now, monotonic = self.now(), self.monotonic()
        self._seen = self._seen.observe(now, monotonic, "")
        return self._seen.expiry(now, monotonic, self.started)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced by ``seconds``."""
        self.slept.append(seconds)
        if self._auto:
            self._passed += max(seconds, 0.0)
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._passed + max(seconds, 0.0), self._order, woken))
        await woken

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call every ``seconds``; a fake clock has no jitter."""
        self._timers[name] = _Timer(self._passed + seconds, seconds, call)

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``."""
        self._timers[name] = _Timer(self._passed + seconds, 0.0, call)

    def cancel(self, name: str) -> None:
        """Forget ``name``."""
        self._timers.pop(name, None)

    def start(self) -> None:
        """Begin to call."""
        self._running = True

    def stop(self) -> None:
        """Never call again."""
        self._running = False
        self._timers.clear()

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass: sleepers wake and timers call in the order in which they are due."""
        target = self._passed + seconds
        await self.run_until_idle()
        while (due := self._next_due()) is not None and due <= target:
            self._passed = max(self._passed, due)
            self._wake()
            self._call()
            await self.run_until_idle()
        self._passed = max(self._passed, target)

    async def run_until_idle(self) -> None:
        """Run all tasks that need no time to pass."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        dues = [timer.due for timer in self._timers.values()] if self._running else []
        if self._sleepers:
            dues.append(self._sleepers[0][0])
        return min(dues, default=None)

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._passed:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def _call(self) -> None:
        if not self._running:
            return
        for name, timer in sorted(self._timers.items(), key=lambda item: item[1].due):
            if timer.due > self._passed or self._timers.get(name) is not timer:
                continue
            if timer.period:
                timer.due += timer.period
            else:
                del self._timers[name]
            timer.call()
