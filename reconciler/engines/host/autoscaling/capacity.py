"""Capacity AI: recommends CPU and memory for containers from their usage.

The platform defines the bounds and the minimum for idle containers (docs/platform/workload.md#capacity-ai); this module
derives a number from history. A slot of five minutes records the highest usage, and the history is a day of slots. The
memory recommendation uses the highest slot, since too little memory kills. The CPU recommendation uses the 95th
percentile, since too little CPU only slows. Both add 15 %. Below an hour of history there is no recommendation. Pure;
times are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.workload.spec import ContainerSpec

SLOT = 300.0
"""Seconds for which one slot records the highest usage."""

SLOTS = 288
"""The number of slots in a history: one day."""

ENOUGH = 12
"""The number of slots that a recommendation needs: one hour."""

PERCENTILE = 95
HEADROOM = 1.15

LEAST_CPU = 25
"""Millicores that an idle container keeps."""

LEAST_MEMORY = 32 * 2**20
"""Bytes below which users are warned (docs/platform/workload.md#cpu-and-memory); the least recommendation."""

RATIO = 3 * 2**20
"""Bytes of memory for each millicore of the least CPU."""

MEBIBYTE = 2**20


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """The highest usage within five minutes, in whole millicores and bytes."""

    cpu: int = 0
    memory: int = 0


class Amount(msgspec.Struct, frozen=True):
    """Recommended resources of a container: ``cpu`` in millicores, ``memory`` in bytes."""

    cpu: int
    memory: int


class UsageHistory(msgspec.Struct, frozen=True):
    """The usage of one container of a workload since ``digest`` is wanted: the highest of all replicas.

    ``slots`` are complete, the oldest first; ``open`` began at ``since``.
    """

    digest: str
    since: float
    slots: tuple[Slot, ...] = ()
    open: Slot = Slot()


def record_usage(history: UsageHistory | None, digest: str, uses: Iterable[Used], now: float) -> UsageHistory:
    """``history`` with the usage of one container in each replica; a change of the workload starts a new history.

    Slots without usage (no daemon or no replicas) are omitted. If the clock restarts, as with the machine, the open
    slot ends.
    """
    if history is None or history.digest != digest:
        history = UsageHistory(digest, now)
    slots = history.slots
    open_, since = history.open, history.since
    if not since <= now < since + SLOT:
        slots = (*slots, open_)[-SLOTS:] if open_ != Slot() else slots
        open_, since = Slot(), now
    for used in uses:
        open_ = Slot(max(open_.cpu, ceil(used.cpu)), max(open_.memory, used.memory))
    return UsageHistory(digest, since, slots, open_)


def recommend_amount(history: UsageHistory | None, container: ContainerSpec) -> Amount | None:
    """The recommendation for ``container``, at most its current resources; None without an hour of history.

    It is at least what its manifest asks for. ``cpu`` is at least 25 millicores, and 1 for every 3 MiB of the memory
    (docs/platform/workload.md#capacity-ai).
    """
    if history is None or len(history.slots) < ENOUGH:
        return None
    highest = max(slot.memory for slot in history.slots)
    memory = min(
        max(round_up_amount(highest * HEADROOM, MEBIBYTE), LEAST_MEMORY, container.min_memory), container.memory
    )
    ranked = sorted(slot.cpu for slot in history.slots)
    usual = ranked[ceil(len(ranked) * PERCENTILE / 100) - 1]
    least = max(LEAST_CPU, ceil(memory / RATIO), container.min_cpu)
    return Amount(min(max(round_up_amount(usual * HEADROOM, 1), least), container.cpu), memory)


def round_up_amount(amount: float, unit: int) -> int:
    """``amount`` rounded up to whole units."""
    return ceil(amount / unit - 1e-9) * unit
