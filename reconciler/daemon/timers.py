"""Timers of the running daemon, on the event loop. They go by the monotonic clock, so setting the clock moves none."""

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
    """Calls on the event loop that is running at ``start``; use it from that loop's thread only.

    The next call is due so long after the last one was made: calls that were missed (a stopped process, a busy loop, a
    machine that slept) are made up for by one. A call that raises is logged and made again when it is next due.
    """

    def __init__(self) -> None:
        self._timers: dict[str, _Timer] = {}
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def every(self, name: str, seconds: float, jitter: float, call: Callable[[], None]) -> None:
        """Call again and again, ``seconds`` plus up to ``jitter`` apart; replaces what ``name`` did before."""
        self._add(name, _Timer(call, seconds, jitter, repeats=True))

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; replaces what ``name`` did before."""
        self._add(name, _Timer(call, seconds))

    def cancel(self, name: str) -> None:
        """Forget ``name``; nothing happens where it is not known."""
        self._timers.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def start(self) -> None:
        """Begin to call, and to count the seconds. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        for name in self._timers:
            self._schedule(name)

    def stop(self) -> None:
        """Never call again."""
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
