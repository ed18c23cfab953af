"""Waits between tries."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.execution.retry import RetryPolicy, longest_wait, wait_after


def test_waits_double_up_to_the_cap() -> None:
    policy = RetryPolicy(base=1, cap=10, attempts=3)
    assert [longest_wait(policy, failures) for failures in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(0, 100_000), st.integers())
def test_a_wait_is_anywhere_below_its_bound(failures: int, seed: int) -> None:
    policy = RetryPolicy(base=0.5, cap=600, attempts=3)
    assert 0 <= wait_after(policy, failures, random.Random(seed)) <= longest_wait(policy, failures) <= 600
