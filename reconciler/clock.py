"""Time behind two small protocols, so that tests can stop it or advance it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from reconciler.times import ExpiryTime

HOLD = 3600.0
"""Seconds for which a clock that was set must hold before anything expires by it."""

JUMP = 5.0
"""Seconds by which the wall clock may differ from the monotonic one before it counts as set."""

CLOCK_FILE = "clock.json"
"""Name of the file in the state directory with the time that the daemon has seen."""

_WRITE_SECONDS = 60.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class SeenTime(NamedTuple):
    """The time as it was seen during the boot ``boot``, and the newest time that was trusted.

    ``epoch`` is the wall clock minus the monotonic clock, as far as it is trusted. ``jumped`` is another value of it,
    which was seen since ``since`` (monotonic seconds). ``jump`` are the seconds by which the clock was set then, at
    least; 0 if that is not certain.
    """

    boot: str
    epoch: float
    newest: float
    jumped: float | None = None
    since: float = 0.0
    jump: float = 0.0

    def observe(self, now: float, monotonic: float, boot: str) -> SeenTime:
        """What is known after a look at both clocks."""
        epoch = now - monotonic
        if boot != self.boot:
            # How long the machine was off is unknown: the time goes on from the newest one.
            # It never goes back by itself.
            back = now - self.newest if now < self.newest - JUMP else 0.0
            seen_time = SeenTime(boot, self.newest - monotonic, self.newest, epoch, monotonic, back)
            return SeenTime(boot, epoch, now) if 0 <= now - self.newest <= HOLD else seen_time
        if abs(epoch - self.epoch) <= JUMP:
            return SeenTime(boot, epoch, now)
        if self.jumped is None or abs(epoch - self.jumped) > JUMP:
            jump = epoch - (self.epoch if self.jumped is None else self.jumped)
            return self._replace(newest=self.epoch + monotonic, jumped=epoch, since=monotonic, jump=jump)
        if monotonic - self.since >= HOLD:
            return SeenTime(boot, epoch, now)
        return self._replace(newest=self.epoch + monotonic)

    def expiry(self, now: float, monotonic: float, started: float) -> ExpiryTime:
        """The time by which things expire, from the last look; the program has looked first at ``started``."""
        if self.jumped is None:
            return ExpiryTime(now, now)
        return ExpiryTime(now, self.epoch + monotonic, self.jumped + self.since, self.jump, self.since >= started)


UNKNOWN = SeenTime("", 0.0, 0.0)
"""No time is known: nothing that exists expires for an hour."""


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring; they count while the machine is suspended."""

    def expiry(self) -> ExpiryTime:
        """The time by which things expire. Whatever is destroyed because time passed is destroyed by this one."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class Timers(Protocol):
    """Repeated and delayed calls: APScheduler in production, the fake clock in tests."""

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
    """The clock of the host. In the directory ``state``, the daemon records what time it has seen; others read that."""

    def __init__(self, state: Path | None = None, *, writes: bool = False) -> None:
        self._file = state / CLOCK_FILE if state is not None else None
        self._writes = writes
        self._boot = ""
        self._seen: SeenTime | None = None
        self._started = float("inf")
        self._written = float("-inf")

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring; they count while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def expiry(self) -> ExpiryTime:
        """The time by which things expire; the program that writes looks at both clocks often."""
        now, monotonic = self.now(), self.monotonic()
        self._started = min(self._started, monotonic)
        self._boot = self._boot or (_BOOT.read_text().strip() if _BOOT.exists() else "here")
        former = self._seen if self._seen is not None and self._writes else read_seen_time(self._file)
        self._seen = former.observe(now, monotonic, self._boot)
        changed = (self._seen.jumped is None) != (former.jumped is None) or self._seen.boot != former.boot
        if self._writes and (changed or monotonic - self._written >= _WRITE_SECONDS):
            self._written = monotonic
            self._write(self._seen)
        return self._seen.expiry(now, monotonic, self._started)

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        import asyncio

        await asyncio.sleep(seconds)

    def _write(self, seen: SeenTime) -> None:
        """Write the file, completely or not at all; on a full disk, the next look tries again."""
        if self._file is None:
            return
        fresh = self._file.with_suffix(".new")
        with suppress(OSError):
            with open(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "w"
            ) as file:
                json.dump(seen, file)
            fresh.replace(self._file)


def read_seen_time(file: Path | None) -> SeenTime:
    """The time that the daemon has seen; a file that is missing or damaged tells nothing."""
    with suppress(OSError, ValueError, TypeError):
        if file is not None:
            boot, epoch, newest, jumped, since, jump = json.loads(file.read_bytes())
            times = float(epoch), float(newest), None if jumped is None else float(jumped), float(since)
            return SeenTime(str(boot), *times, float(jump))
    return UNKNOWN
