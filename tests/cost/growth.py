"""How the CPU time and the memory of a reader grow when its input doubles."""

from __future__ import annotations

import gc
import re
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

MOST = 2.6
"""Twice the input may cost so many times as much: twice for the input, and the rest for what varies."""
_SUSPECT = 2.2
"""What grows more than this is measured again at twice the size, where a quadratic part is a larger one."""
_TRIES = 3
_LONG = 0.6
"""CPU seconds after which no larger size is tried."""
_SHORTEST = 0.008
"""CPU seconds below which a time is nothing but noise."""
_LEAST_MEMORY = 700_000
"""Bytes below which a peak says nothing: caches and compiled patterns come first."""


class Shape(NamedTuple):
    """An input by its size, and what reads it; ``count`` is where measuring begins.

    ``repeats``: it names one thing again and again, so that its memory is measured in the short form too.
    """

    make: Callable[[int], Any]
    read: Callable[[Any], object]
    count: int = 500
    repeats: bool = False


class Growth(NamedTuple):
    """By what factor CPU time and peak memory grow from ``count`` to twice as many."""

    count: int
    time: float
    memory: float

    @property
    def is_linear(self) -> bool:
        """Whether both grow as the input does."""
        return max(self.time, self.memory) <= MOST


def growth_of(shape: Shape, share: float = 1.0) -> Growth:
    """How ``shape`` grows, from that ``share`` of its count on; what looks quadratic is measured at larger sizes."""
    count = max(int(shape.count * share), 10)
    memory = _memory(shape, count) if share == 1.0 or shape.repeats else 1.0
    factor, spent = _doubled(shape, count)
    for _ in range(_TRIES):
        if factor < _SUSPECT:
            break
        # Other work on the machine makes a time longer, and never shorter: the shortest of three is the right one.
        factor, spent = _doubled(shape, count, 3)
        if factor < _SUSPECT or spent > _LONG:
            break
        count *= 2
        factor, spent = _doubled(shape, count, 3)
    return Growth(count, factor, memory)


def _memory(shape: Shape, count: int) -> float:
    """By what factor the peak of memory grows; caches and tables make small sizes uneven, so larger ones follow."""
    factor = 1.0
    for larger in (count, 2 * count, 4 * count, 8 * count):
        factor = _ratio(_peak(shape, larger // 2), _peak(shape, larger), _LEAST_MEMORY)
        if factor < _SUSPECT:
            break
    return factor


def _doubled(shape: Shape, count: int, repeats: int = 1) -> tuple[float, float]:
    """By what factor the CPU time grows from ``count`` to twice as many, and the longer time."""
    pairs = [(_seconds(shape, count), _seconds(shape, 2 * count)) for _ in range(repeats)]
    shorter, longer = (min(times) for times in zip(*pairs, strict=True))
    return _ratio(shorter, longer, _SHORTEST), longer


def _ratio(before: float, after: float, least: float) -> float:
    return after / before if after > least and before else 1.0


def _seconds(shape: Shape, count: int) -> float:
    """CPU seconds of this thread, without the collector of garbage, which comes when it likes."""
    content = shape.make(count)
    re.purge()  # or what was compiled for twice as many would be known already
    gc.collect()
    gc.disable()
    began = time.thread_time()
    try:
        shape.read(content)
        return time.thread_time() - began
    finally:
        gc.enable()


def _peak(shape: Shape, count: int) -> int:
    content = shape.make(count)
    re.purge()
    tracemalloc.start()
    try:
        shape.read(content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
