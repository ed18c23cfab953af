"""Reports when the records are not backed up as the settings expect, and when they are again."""

from __future__ import annotations

from reconciler.clock import Clock
from reconciler.logs import log
from reconciler.reasons import ConditionType, Reason
from reconciler.records.backup_times import BackupTimes
from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST, ScopeCondition
from reconciler.records.tables.events import NewEvent
from reconciler.settings import BackupSettings, Settings
from reconciler.status.backups import judge_backups

CHECK_SECONDS = 60.0
"""Seconds between checks; `reconciler backup` wakes the daemon for one at once."""


class BackupMonitor:
    """Compares the times of backups, which `reconciler backup` records, with the settings."""

    def __init__(self, records: Records, settings: Settings, clock: Clock) -> None:
        self._records = records
        self._settings = settings
        self._clock = clock

    @property
    def interval(self) -> float:
        """The seconds between two checks; 0 where the settings expect no backups."""
        return CHECK_SECONDS if self._settings.backups is not None else 0.0

    def check(self) -> None:
        """Report a change by a condition, an event and a line of the log. Raises RecordsError."""
        conditions = self._records.conditions.get(HOST)
        former = next((condition for condition in conditions if condition.type == ConditionType.BACKED_UP), None)
        if self._settings.backups is not None:
            self._compare(former, self._settings.backups)
        elif former is not None:
            self._forget(former)

    def _compare(self, former: ScopeCondition | None, settings: BackupSettings) -> None:
        records = self._records
        current = judge_backups(self._read_times(), settings, self._clock.expiry())
        if former is not None and former.condition == current:
            return
        recovers = former is not None and not former.status and current.status
        with records.transaction():
            records.conditions.set(HOST, current)
            if not current.status or recovers:
                self._append(Reason.BACKUP_RECOVERED if recovers else Reason(current.reason), current.message)
        if not current.status:
            log().warning("backup", reason=current.reason, message=current.message)
        elif recovers:
            log().info("backup", reason=current.reason, message=current.message)

    def _read_times(self) -> BackupTimes:
        """The times of backups; without any, the wait for the first one begins now."""
        backups = self._records.backups
        times = backups.get()
        if times.taken is not None or times.awaited is not None:
            return times
        now = self._clock.now()
        backups.set_awaited(now)
        return times._replace(awaited=now)

    def _forget(self, former: ScopeCondition) -> None:
        """End what was reported: the settings no longer expect backups."""
        records = self._records
        with records.transaction():
            records.backups.set_awaited(None)
            records.conditions.drop(HOST, ConditionType.BACKED_UP)
            if not former.status:
                self._append(Reason.BACKUP_RECOVERED, "the settings no longer expect backups of the records")

    def _append(self, reason: Reason, message: str) -> None:
        self._records.events.append_many([NewEvent("", reason, message)])
        self._records.events.trim(self._settings.events.keep)
