"""How far the schedules of recorded cron workloads are handled, so that no due time counts twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from reconciler.model.key import Key
from reconciler.records.database import Database
from reconciler.records.sql import stored_key


class SchedulePosition(NamedTuple):
    """``checked`` is the last minute since the epoch that was handled under ``schedule``, "" while suspended."""

    schedule: str
    checked: int


class Schedules:
    """One row for each cron workload and location of the recorded engine."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def at_location(self, location: str) -> dict[Key, SchedulePosition]:
        """The positions at ``location``."""
        rows = self._db.all("SELECT key, schedule, checked FROM schedules WHERE location = ?", (location,))
        return {stored_key(key, "schedules"): SchedulePosition(schedule, checked) for key, schedule, checked in rows}

    def put_many(self, location: str, positions: Iterable[tuple[Key, SchedulePosition]]) -> None:
        """Write positions at ``location``, all or none."""
        self._db.write_many(
            "INSERT OR REPLACE INTO schedules (location, key, schedule, checked) VALUES (?, ?, ?, ?)",
            ((location, str(key), *position) for key, position in positions),
        )

    def remove_many(self, location: str, keys: Iterable[Key]) -> None:
        """Remove the positions of ``keys`` at ``location``, all or none."""
        rows = ((location, str(key)) for key in keys)
        self._db.write_many("DELETE FROM schedules WHERE location = ? AND key = ?", rows)
