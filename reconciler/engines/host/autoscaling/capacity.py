"""Capacity AI: how much CPU and memory the containers of a workload could do with, judged by what they have used.

The bounds, and what idle containers keep, are the platform's (docs/platform/workload.md#capacity-ai); how history
becomes a number is decided here. Five minutes make a slot, of which the highest use is kept; a day of slots is the
history. Memory is the highest of them all, since too little kills; CPU is what was enough in 95 of 100 slots, since too
little only slows. Both get 15 % on top. There is no recommendation before an hour of history. Pure; times are seconds
of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.kinds.workload import metric_of

SLOT = 300.0
"""Seconds of use of which the highest is kept."""

SLOTS = 288
"""How many are kept: those of a day."""

ENOUGH = 12
"""How many make a recommendation: those of an hour."""

PERCENTILE = 95
HEADROOM = 1.15

LEAST_CPU = 25
"""Millicores that an idle container keeps."""

LEAST_MEMORY = 32 * 2**20
"""Bytes below which users are warned (docs/platform/workload.md#cpu-and-memory): nothing less is recommended."""

RATIO = 3 * 2**20
"""Bytes of memory for each millicore of the least CPU."""

MEBIBYTE = 2**20


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """The highest use seen in five minutes, in whole millicores and bytes."""

    cpu: int = 0
    memory: int = 0


class Amount(msgspec.Struct, frozen=True):
    """What a container should be given: ``cpu`` in millicores, ``memory`` in bytes."""

    cpu: int
    memory: int


class History(msgspec.Struct, frozen=True):
    """What one container of a workload has used, the highest of its replicas, as long as ``digest`` was wanted.

    ``slots`` are over, the oldest first; ``open`` began at ``since``.
    """

    digest: str
    since: float
    slots: tuple[Slot, ...] = ()
    open: Slot = Slot()


def applies(wanted: WorkloadSpec) -> bool:
    """Whether Capacity AI is on: by default, but not with cpu or on cron (docs/platform/workload.md#capacity-ai)."""
    scaled_by_cpu = metric_of(wanted.type, wanted.options) == "cpu"
    return wanted.options.capacity_ai is not False and not scaled_by_cpu and wanted.type is not Type.CRON


def learned(history: History | None, digest: str, uses: Iterable[Used], now: float) -> History:
    """``history`` with what each replica used of one container; any change of the workload begins it anew.

    Slots in which nothing was seen (the daemon was stopped, there were no replicas) are left out. A clock that began
    anew, as that of a machine does, ends the open one.
    """
    if history is None or history.digest != digest:
        history = History(digest, now)
    slots = history.slots
    open_, since = history.open, history.since
    if not since <= now < since + SLOT:
        slots = (*slots, open_)[-SLOTS:] if open_ != Slot() else slots
        open_, since = Slot(), now
    for used in uses:
        open_ = Slot(max(open_.cpu, ceil(used.cpu)), max(open_.memory, used.memory))
    return History(digest, since, slots, open_)


def recommended(history: History | None, container: ContainerSpec) -> Amount | None:
    """What ``container`` could do with, never more than it is given now; None without an hour of history.

    ``cpu`` is at least 25 millicores, and 1 for every 3 MiB of the memory (docs/platform/workload.md#capacity-ai).
    """
    if history is None or len(history.slots) < ENOUGH:
        return None
    highest = max(slot.memory for slot in history.slots)
    memory = min(max(_whole(highest * HEADROOM, MEBIBYTE), LEAST_MEMORY), container.memory)
    ranked = sorted(slot.cpu for slot in history.slots)
    usual = ranked[ceil(len(ranked) * PERCENTILE / 100) - 1]
    least = max(LEAST_CPU, ceil(memory / RATIO))
    return Amount(min(max(_whole(usual * HEADROOM, 1), least), container.cpu), memory)


def _whole(amount: float, unit: int) -> int:
    return ceil(amount / unit - 1e-9) * unit
