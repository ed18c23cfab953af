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


def room(path: Path, reserve: Reserve) -> int:
    """Bytes that the disk of ``path`` has free beside the reserve; negative if a part of that is used."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize - _reserved(found, reserve)


def _reserved(found: os.statvfs_result, reserve: Reserve) -> int:
    return max(int(found.f_blocks * found.f_frsize * reserve.percent / 100), reserve.least)


def check_space(path: Path, reserve: Reserve, needed: int, savings: Callable[[], Iterable[Saving]]) -> None:
    """Raise EngineError unless the disk of ``path`` has ``needed`` bytes beside the reserve; it names ``savings``."""
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    least = _reserved(found, reserve)
    if free - needed >= least:
        return
    largest = sorted(savings(), reverse=True)[:_SUGGESTIONS]
    remedy = "; ".join(f"{each.action} frees up to {size_in_words(each.size)}" for each in largest)
    wanted = f" and {size_in_words(needed)} are needed" if needed else ""
    raise EngineError(
        f"the disk of {path} has {size_in_words(free)} free, {size_in_words(least)} are reserved{wanted}: "
        f"{remedy or 'make room on it, or reserve less with host.diskReserve'}",
        reason=Reason.HOST_DISK_LOW,
    )
