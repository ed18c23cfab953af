"""The room on the disk of the volumes, of which a part is reserved: images promise more than the disk has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.volumes.layout import GIB
from reconciler.engines.volumes import size_in_words
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_SUGGESTIONS = 3


class Reserve(NamedTuple):
    """The part of the disk that growth and snapshots leave free: a percentage, and bytes at least."""

    percent: float = 5
    least: int = 2 * GIB


RESERVE = Reserve()
"""The default."""


def reserve_of(percent: float) -> Reserve:
    """The reserve with a ``percent`` of the disk; 0 reserves nothing."""
    return Reserve(percent) if percent else Reserve(0, 0)


class Saving(NamedTuple):
    """What would make room, and how much: ``size`` bytes at most."""

    size: int
    action: str


def compute_free_space(path: Path, reserve: Reserve) -> int:
    """Bytes that the disk of ``path`` has free beside the reserve; negative if a part of that is used."""
    statvfs_result = os.statvfs(path)
    return statvfs_result.f_bavail * statvfs_result.f_frsize - _compute_reserved_bytes(statvfs_result, reserve)


def _compute_reserved_bytes(statvfs_result: os.statvfs_result, reserve: Reserve) -> int:
    return max(int(statvfs_result.f_blocks * statvfs_result.f_frsize * reserve.percent / 100), reserve.least)


def check_space(path: Path, reserve: Reserve, needed: int, savings: Callable[[], Iterable[Saving]]) -> None:
    """Raise EngineError unless the disk of ``path`` has ``needed`` bytes beside the reserve; it names ``savings``."""
    statvfs_result = os.statvfs(path)
    free = statvfs_result.f_bavail * statvfs_result.f_frsize
    least = _compute_reserved_bytes(statvfs_result, reserve)
    if free - needed >= least:
        return
    largest = sorted(savings(), reverse=True)[:_SUGGESTIONS]
    remedy = "; ".join(f"{saving.action} frees up to {size_in_words(saving.size)}" for saving in largest)
    demand = f" and {size_in_words(needed)} are needed" if needed else ""
    raise EngineError(
        f"the disk of {path} has {size_in_words(free)} free, {size_in_words(least)} are reserved{demand}: "
        f"{remedy or 'make room on it, or reserve less with host.diskReserve'}",
        reason=Reason.HOST_DISK_LOW,
    )
