"""Timers of the daemon, on the event loop. They use the monotonic clock, so setting the clock moves none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec

from reconciler.bugs import contained


class _Timer(msgspec.Struct, frozen=True):
    call: Callable[[], None]
    seconds: float
    jitter: float = 0.0
    repeats: bool = False


class LoopTimers:
    """Calls on the event loop that runs at ``start``; use it from that loop's thread only.

    The interval counts from the last call: one call replaces all missed ones (a stopped process, a busy loop, a
    suspended machine). A call that raises is logged, and made again when it is next due.
    """

    def __init__(self) -> None:
        self._timers: dict[str, _Timer] = {}
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call repeatedly, ``seconds`` plus up to ``jitter`` apart; replaces an earlier timer ``name``."""
        self._add(name, _Timer(call, seconds, jitter, repeats=True))

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces an earlier timer ``name``."""
        self._add(name, _Timer(call, seconds))

    def cancel(self, name: str) -> None:
        """Remove the timer ``name``; does nothing if it does not exist."""
        self._timers.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def start(self) -> None:
        """Start all timers. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        for name in self._timers:
            self._schedule(name)

    def stop(self) -> None:
        """Cancel all timers."""
        for name in list(self._timers):
            self.cancel(name)
        self._loop = None

    def _add(self, name: str, timer: _Timer) -> None:
        self.cancel(name)
        self._timers[name] = timer
        self._schedule(name)

    def _schedule(self, name: str) -> None:
        if self._loop is not None:
            timer = self._timers[name]
            wait = timer.seconds + random.uniform(0.0, timer.jitter)
            self._handles[name] = self._loop.call_later(wait, self._fire, name)

    def _fire(self, name: str) -> None:
        timer = self._timers[name]
        if timer.repeats:
            self._schedule(name)
        else:
            del self._timers[name], self._handles[name]
        with contained(f"timer {name}"):
            timer.call()
