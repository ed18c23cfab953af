"""How many examples a property is tried with: few in every run of the tests, many in the long suites.

``EXAMPLES=10`` multiplies by ten; `make soak` does so for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

FACTOR = int(os.environ.get("EXAMPLES", "0"))
"""0 in every run."""

FEW = 25
"""Examples of a property that names no number of its own."""


def examples(count: int) -> int:
    """How many examples to try where ``count`` are a thorough check: a quarter of it in every run."""
    return count * FACTOR or max(10, count // 4)


def thin_out(values: Iterable[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """``values`` as parameters of a test: each third in every run, the others in the long suites, which are alike.

    ``name`` makes the ids.
    """
    return [
        pytest.param(value, id=name(value) if name else None, marks=[pytest.mark.slow] if number % 3 else [])
        for number, value in enumerate(values)
    ]


settings.register_profile("reconciler", max_examples=FEW * FACTOR or FEW, deadline=None)
settings.load_profile("reconciler")
