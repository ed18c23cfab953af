"""What a volume needs by itself, on every engine: growth, scheduled snapshots, expired snapshots; pure.

Capacities are in GB, times in seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

import msgspec

from reconciler.engines.due_times import begins_anew, due_times
from reconciler.engines.volumes import BEFORE_RESTORE, MOST_CAPACITY, Snapshot
from reconciler.model.kinds.volumeset import Growth, Snapshots
from reconciler.model.quantity import GIB
from reconciler.times import FIRST_DAY, ExpiryTime, format_iso_time

SCHEDULED = "reconciler/schedule"
"""The tag of snapshots that the schedule took; its value is the schedule."""

KEEP_REPLACED = 3
"""The number of snapshots of replaced data that a volume keeps: each may take as much of the disk as the volume."""

LEAST_FACTOR = 1.1
"""The scaling factor of a volume set without one."""

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0}


class ScheduleState(msgspec.Struct, frozen=True):
    """How far a schedule is: ``checked`` is the last minute since the epoch that was handled under ``schedule``."""

    schedule: str = ""
    checked: int = 0


def grown_capacity(growth: Growth, capacity: float, used: int) -> float | None:
    """The capacity to which a volume with ``used`` bytes grows by itself; None if it stays.

    See docs/platform/volumeset.md#automatic-growth. A volume never shrinks.
    """
    if growth.min_free_percentage is None or capacity <= 0:
        return None
    share, filled = growth.min_free_percentage / 100, used / GIB
    if capacity - filled >= capacity * share:
        return None
    largest = float(MOST_CAPACITY if growth.max_capacity is None else growth.max_capacity)
    # No capacity keeps all of a used volume free, and the formula would divide by zero.
    needed = math.inf if share >= 1 else filled / (1 - share) * (growth.scaling_factor or LEAST_FACTOR)
    target = round(min(needed, largest), 3)
    return target if target > capacity else None


def due_snapshot(state: ScheduleState, snapshots: Snapshots, now: float) -> tuple[ScheduleState, int | None]:
    """The state at ``now``, and the minute whose snapshot is due; None if none is.

    A new or changed schedule begins now. After a downtime only the newest time counts.
    """
    minute, schedule = int(now // 60), snapshots.schedule or ""
    if begins_anew(schedule, state.schedule, state.checked, minute):
        return ScheduleState(schedule, minute), None
    times = due_times(schedule, state.checked, minute)
    return (state, None) if times is None else (ScheduleState(schedule, times.newest), times.newest)


def scheduled_name(minute: int) -> str:
    """The name of the snapshot that is due at ``minute``; taken twice, it is the same one."""
    return f"scheduled-{compact_time(format_iso_time(minute * 60.0))}"


def compact_time(time: str) -> str:
    """An ISO 8601 time as a part of a name."""
    return "".join(letter for letter in time if letter.isalnum())


def compute_expiry(snapshots: Snapshots, now: float) -> str:
    """When a snapshot that the schedule takes at ``now`` expires; "" for never."""
    duration = retention_seconds(snapshots.retention_duration)
    return "" if duration is None else format_iso_time(now + duration)


def scheduled_snapshots(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Those that the schedule took, the oldest first."""
    return sorted(
        (snapshot for snapshot in snapshots if SCHEDULED in snapshot.tags),
        key=lambda taken: (taken.created, taken.name),
    )


def select_expired_snapshots(
    snapshots: Iterable[Snapshot], expiry: ExpiryTime, keep_last: int | None = None
) -> tuple[str, ...]:
    """The names of the snapshots to delete: those that expired, and those of the schedule but the ``keep_last`` newest.

    The newest one of the schedule stays until there is a newer one, and so do the newest of what restores replaced. One
    from the future was taken while the clock was ahead: it makes no other one old.
    """
    listed = sorted(snapshots, key=lambda taken: (taken.created, taken.name))
    past = [snapshot for snapshot in listed if _parse_seconds(snapshot.created) <= expiry.now]
    scheduled = scheduled_snapshots(past)
    surplus = scheduled[:-keep_last] if keep_last is not None else []
    surplus += [taken for taken in past if BEFORE_RESTORE in taken.tags][:-KEEP_REPLACED]
    over = [snapshot for snapshot in listed if (expiry.is_steady and snapshot in surplus) or _is_over(snapshot, expiry)]
    return tuple(snapshot.name for snapshot in over if snapshot not in scheduled[-1:])


def _is_over(snapshot: Snapshot, expiry: ExpiryTime) -> bool:
    """Whether a snapshot has expired, and not only by the clock of a host that did not know the time."""
    until = _parse_seconds(snapshot.expires) if snapshot.expires else math.inf
    return until >= FIRST_DAY and expiry.is_over(until, _parse_seconds(snapshot.created))


@lru_cache(maxsize=256)
def retention_seconds(text: str) -> float | None:
    """``7d``, ``1.5h`` or ``30m`` in seconds; None if there is no such duration."""
    try:
        return float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        return None


def _parse_seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
