"""Retries of requests to registries: exponential waits, and those that the registry requests."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import NamedTuple

from reconciler.clock import Clock
from reconciler.engines.execution.retry import RetryPolicy, longest_wait
from reconciler.engines.workload.image_reference import ImageError

POLICY = RetryPolicy(base=10.0, cap=300.0)
"""Waits in seconds after failures in a row; the real ones are at least half as long."""
MOST_REMEMBERED = 10_000
"""The most failures that are remembered; the oldest are forgotten first."""


class _Failure(NamedTuple):
    error: ImageError
    number: int
    until: float


class PullAttempts:
    """Remembers failures by request, and pauses of whole registries."""

    def __init__(self, clock: Clock, rng: random.Random, policy: RetryPolicy = POLICY) -> None:
        self._clock = clock
        self._rng = rng
        self._policy = policy
        self._failures: dict[Hashable, _Failure] = {}
        self._pauses: dict[str, float] = {}

    def check(self, tried: Hashable, image: str, host: str) -> None:
        """Raise ImageError if it is too early for ``tried``: the last error, or the pause of ``host``."""
        now = self._clock.monotonic()
        last = self._failures.get(tried)
        if last is not None and last.until > now:
            raise _add_wait(last.error, last.until - now)
        pause = self._pauses.get(host, now)
        if pause > now:
            raise ImageError(f"the image {image} is not asked for yet: {host} asked for a pause", wait=pause - now)

    def failures(self, tried: Hashable) -> int:
        """The number of failures in a row."""
        last = self._failures.get(tried)
        return last.number if last is not None else 0

    def fail(self, tried: Hashable, host: str, error: ImageError) -> ImageError:
        """Record a failure; returns it with the time to wait.

        If the registry requested a pause, no other image is requested from it either.
        """
        now, number = self._clock.monotonic(), self.failures(tried) + 1
        wait = longest_wait(self._policy, number) * self._rng.uniform(0.5, 1.0)
        if error.wait is not None:
            # Not all at the same moment when the pause ends.
            pause = error.wait * self._rng.uniform(1.0, 1.1)
            self._pauses[host] = max(now + pause, self._pauses.get(host, now))
            wait = max(wait, pause)
        self._failures.pop(tried, None)
        self._failures[tried] = _Failure(error, number, now + wait)
        while len(self._failures) > MOST_REMEMBERED:
            del self._failures[next(iter(self._failures))]
        return _add_wait(error, wait)

    def succeed(self, tried: Hashable) -> None:
        """Forget failures."""
        self._failures.pop(tried, None)


def _add_wait(error: ImageError, wait: float) -> ImageError:
    return ImageError(str(error), reason=error.reason, retry=error.retry, wait=wait, missing=error.missing)
