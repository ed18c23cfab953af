"""Rows about changes that should cost the same among ten times the resources."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from statistics import median

from tests.bench.ground import Ground
from tests.bench.measure import inside
from tests.bench.table import Row
from tests.cost.changes import CHANGES

FEW, MANY = 1_000, 10_000
MOST = 1.5
TURNS = 3


def growth(ground: Ground) -> Iterator[Row]:
    """Each change among few resources and among many, in CPU seconds."""
    few, many = (FEW // 10, MANY // 10) if ground.quick else (FEW, MANY)
    for name in CHANGES:
        taken: dict[int, list[float]] = {few: [], many: []}
        for _ in range(ground.often(TURNS)):  # in turn, so that a slow minute of the machine is one for both
            for count, found in taken.items():
                found += _measured(ground, name, count)
        before, after = (median(found) for found in taken.values())
        note = f"CPU among {few:,} {1000 * before:.1f} ms, among {many:,} {1000 * after:.1f} ms"
        yield Row(f"{name}: among {many:,} against {few:,}", after / before, MOST, "times", note=note, cpu=after)


def _measured(ground: Ground, name: str, count: int) -> list[float]:
    with tempfile.TemporaryDirectory(dir=ground.scratch) as directory:
        found: list[float] = inside("growth", directory=directory, change=name, count=count, times=ground.often(20))[0]
    return found
