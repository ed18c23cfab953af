"""CPU seconds of a quiet machine: a limit is as much longer as this machine is slower, or busier, just now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import yaml

PAGE = "".join(f"key-{n}: {{name: value {n}, items: [1, two, '3']}}\n" for n in range(400))
QUIET = 0.009
"""CPU seconds that PyYAML's C loader needs for PAGE on the machine that the README's figures come from."""


def slowness() -> float:
    """How many times longer this machine takes now than the quiet one; at least 1.

    Others who share caches and cores make CPU seconds longer too, so this is measured beside the work that it judges.
    """
    began = time.process_time()
    for _ in range(4):
        yaml.load(PAGE, yaml.CSafeLoader)
    return max(1.0, (time.process_time() - began) / 4 / QUIET)


def on_quiet_machine(seconds: float) -> float:
    """The CPU seconds that the quiet machine would have needed for what took this one ``seconds`` just now."""
    return seconds / slowness()


def in_time(work: Callable[[], Any], seconds: float, spent: float = 0.0) -> tuple[Any, float]:
    """What ``work`` returns, and the quiet machine's CPU seconds of it and of the ``spent`` before.

    Raises AssertionError where three tries take more than ``seconds``.
    """
    before: float | None = None
    for _ in range(3):
        began = time.process_time()
        result = work()
        took = time.process_time() - began
        if spent + took >= seconds / 2:  # less is less on the quiet machine too, and near no limit
            # The pace changes within a second: from the second try on it is measured on both sides of the work.
            after = slowness()
            took /= (after + (before or after)) / 2
            before = after
        if spent + took < seconds:
            return result, spent + took
    raise AssertionError(f"took {spent + took:.2f} s, more than {seconds:.2f}")
