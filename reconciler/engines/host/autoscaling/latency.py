"""Percentiles of the response times of each replica over the last minute, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import ceil, log
from typing import NamedTuple

from reconciler.model.key import Key

ERROR = 0.025
"""The greatest relative error of a percentile."""

GROWTH = (1 + ERROR) / (1 - ERROR)
"""The upper end of each bucket as a multiple of its lower end."""

LEAST, MOST = 0.1, 600_000.0
"""Milliseconds: shorter and longer times count as these. No request takes more than 600 s."""

SLOTS = 3
"""A minute, in slots of the 20 seconds between two calls of ``collect``."""

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p75": 0.75, "p99": 0.99}

_LOG_GROWTH = log(GROWTH)


class Histogram:
    """Counts of milliseconds in buckets that grow by 5 %: at most 314 of them, whatever is added."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, milliseconds: float) -> None:
        """Count one response."""
        bucket = ceil(log(min(max(milliseconds, LEAST), MOST) / LEAST) / _LOG_GROWTH)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def merge(self, other: Histogram) -> None:
        """Add the counts of ``other``."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def percentiles(self) -> dict[str, float]:
        """Milliseconds within which that part of the responses came, by name; empty without any."""
        total = sum(self._counts.values())
        values, below, ranks = {}, 0, [(ceil(part * total), name) for name, part in PERCENTILES.items()]
        for bucket in sorted(self._counts):
            below += self._counts[bucket]
            while ranks and ranks[0][0] <= below:
                # The middle of a bucket is as far from its lower end as from its upper one, in percent.
                values[ranks.pop(0)[1]] = LEAST * GROWTH**bucket * (1 - ERROR)
        return values

    def __len__(self) -> int:
        return len(self._counts)


Slot = dict[str, Histogram]
"""The responses of 20 seconds, by replica."""


class Latency(NamedTuple):
    """Percentiles by name, for each replica that answered in the last minute until ``at``."""

    at: float
    replicas: Mapping[str, Mapping[str, float]]


class Latencies:
    """The response times of the workloads that are scaled by them; those of others are ignored.

    A workload counts as one of them from ``follow`` to ``forget``. Call ``collect`` every 20 seconds.
    """

    def __init__(self) -> None:
        self._slots: dict[Key, deque[Slot]] = {}
        self._collected: dict[Key, Latency] = {}

    def add(self, key: Key, replica: str, milliseconds: float) -> None:
        """Count one response; a LatencyListener."""
        slots = self._slots.get(key)
        if slots is None:
            return
        histogram = slots[-1].get(replica)
        if histogram is None:
            histogram = slots[-1][replica] = Histogram()
        histogram.add(milliseconds)

    def follow(self, key: Key) -> None:
        """Count the responses of a workload from now on."""
        if key not in self._slots:
            self._slots[key] = deque([{}], maxlen=SLOTS)

    def forget(self, key: Key) -> None:
        """Ignore the responses of a workload from now on."""
        if self._slots.pop(key, None) is not None:
            self._collected.pop(key, None)

    def collect(self, now: float) -> None:
        """Compute the percentiles of the last minute, for decisions until the next call."""
        for key, slots in self._slots.items():
            merged: Slot = {}
            for slot in slots:
                for replica, histogram in slot.items():
                    merged.setdefault(replica, Histogram()).merge(histogram)
            self._collected[key] = Latency(now, {name: histogram.percentiles() for name, histogram in merged.items()})
            slots.append({})

    def values(self, key: Key, counted: Collection[str], percentile: str) -> tuple[float, list[float]] | None:
        """When the percentiles were computed, and the milliseconds of each counted replica that has any.

        None before the first ``collect``.
        """
        latencies = self._collected.get(key)
        if latencies is None:
            return None
        replicas = sorted(latencies.replicas.keys() & {*counted})
        return latencies.at, [latencies.replicas[name][percentile] for name in replicas]
