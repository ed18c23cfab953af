"""Aggregates health: the worst of all parts (docs/platform/workload.md#health)."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.record import Health
from reconciler.records.tables.applied import WORST_FIRST

_RANK = {health: rank for rank, health in enumerate(WORST_FIRST)}


def find_worst_health(healths: Iterable[Health]) -> Health:
    """The health of a whole from that of its parts; Unknown without parts."""
    return min(healths, key=_RANK.__getitem__, default=Health.UNKNOWN)
