"""How many examples a property is tried with: few in every run of the tests, many in the long suites.

``EXAMPLES=10`` multiplies by ten; `make soak` does so for all of them.
"""

from __future__ import annotations

import os

from hypothesis import settings

FACTOR = int(os.environ.get("EXAMPLES", "0"))
"""0 in every run."""

FEW = 25
"""Examples of a property that names no number of its own."""


def examples(count: int) -> int:
    """How many examples to try where ``count`` are a thorough check: a quarter of it in every run."""
    return count * FACTOR or max(10, count // 4)


settings.register_profile("reconciler", max_examples=FEW * FACTOR or FEW, deadline=None)
settings.load_profile("reconciler")
