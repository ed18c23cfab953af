"""Reports when the disk of the state directory is full, and when it has free space again."""

from __future__ import annotations

from functools import partial

from reconciler.clock import Timers
from reconciler.daemon.wake import WakeQueue
from reconciler.logs import log
from reconciler.pipeline.runner import Runner
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.suspensions import source_target
from reconciler.status.conditions import make_condition

DISK = "/disk"
"""Wake-up name, in place of a source (whose name has no slash), that checks for free space."""

CHECK_SECONDS = 5.0
"""Seconds between checks while the disk is full, and between attempts to write the records."""

AT_ONCE = 0.05
"""Seconds until the next attempt after the reserve was released for it."""


class DiskMonitor:
    """Adds wake-ups to ``wakes``: for its next ``check``, and for every source when the disk has free space again."""

    def __init__(self, runner: Runner, timers: Timers, wakes: WakeQueue) -> None:
        self._runner = runner
        self._timers = timers
        self._wakes = wakes
        self._reported: bool | None = None

    def retry_seconds(self) -> float:
        """Seconds until the next attempt to write the records, after one failed."""
        return AT_ONCE if self._runner.records.reserve.was_released() else CHECK_SECONDS

    def check(self) -> None:
        """Restore the reserve if there is room; report a change by a condition and an event. Raises RecordsError."""
        reserve = self._runner.records.reserve
        reserve.restore()
        if reserve.full:
            self._timers.after("disk", CHECK_SECONDS, partial(self._wakes.add, DISK, "disk"))
        if reserve.full == self._reported:
            return
        before, self._reported = self._reported, None
        if reserve.full:
            self._report_full()
        else:
            self._report_room()
            if before:
                self._wakes.add(None, "records")
        self._reported = reserve.full

    def _report_full(self) -> None:
        message = (
            f"the disk of {self._runner.settings.state} is full: replicas keep running and are restarted, and "
            "only deletes are applied; free space there, and the daemon continues"
        )
        log().error("disk", full=True, message=message)
        for name in self._runner.pipelines:
            self._runner.conditions.set(name, make_condition(ConditionType.DISK_FULL, True, Reason.DISK_FULL, message))
        self._append(Reason.DISK_FULL, message)

    def _report_room(self) -> None:
        records = self._runner.records
        names = [
            name
            for name in self._runner.pipelines
            if any(e.type == ConditionType.DISK_FULL for e in records.conditions.get(name))
        ]
        for name in names:
            records.conditions.drop(name, ConditionType.DISK_FULL)
        if names:
            message = f"the disk of {self._runner.settings.state} has free space again"
            log().info("disk", full=False, message=message)
            self._append(Reason.DISK_RECOVERED, message)

    def _append(self, reason: Reason, message: str) -> None:
        events = [NewEvent(source_target(name), reason, message) for name in self._runner.pipelines]
        self._runner.conditions.append_events(events)
