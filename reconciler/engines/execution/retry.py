"""The wait before the next try: exponential, bounded, with full jitter."""

from __future__ import annotations

import random

import msgspec


class RetryPolicy(msgspec.Struct, frozen=True):
    """Waits begin at ``base`` seconds and double up to ``cap`` seconds; a run makes at most ``attempts`` per step."""

    base: float = 1.0
    cap: float = 600.0
    attempts: int = 3


def longest_wait(policy: RetryPolicy, failures: int) -> float:
    """The upper bound in seconds of the wait after ``failures`` failed tries (at least one)."""
    doublings = min(max(failures, 1) - 1, 63)
    return float(min(policy.cap, policy.base * 2**doublings))


def wait_after(policy: RetryPolicy, failures: int, rng: random.Random) -> float:
    """Seconds to wait after ``failures`` failed tries: random below the bound, so that retries do not coincide."""
    return rng.uniform(0.0, longest_wait(policy, failures))
