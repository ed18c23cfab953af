"""The scheduled executions of cron workloads at one location of the recorded engine."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from reconciler.engines.due_times import AHEAD, DueTimes, begins_anew, due_times, missed_message, next_due
from reconciler.engines.workload.deployment import add_execution, read_deployment
from reconciler.model.key import Key
from reconciler.model.kinds.workload import options_at, read_specification
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.records.tables.events import NewEvent
from reconciler.records.tables.schedules import SchedulePosition
from reconciler.times import format_iso_time

_encode = msgspec.json.Encoder().encode


class _Schedule(NamedTuple):
    """A cron workload: its schedule and how far that is handled, and the executions that its history holds."""

    position: SchedulePosition
    limit: int


class RecordedSchedules:
    """Each due time becomes one successful execution, as an execution on demand does.

    The position of a schedule is written with the execution. The next due times are in memory, so that a call costs
    what is due or has changed.
    """

    def __init__(self, records: Records, location: str, engine: str) -> None:
        self._records = records
        self._location = location
        self._engine = engine
        self._known: dict[Key, _Schedule] | None = None
        self._changed: set[Key] = set()
        self._new: set[Key] = set()
        self._minute = 0
        self._due: list[tuple[int, Key]] = []

    def note_change(self, key: Key, *, new: bool) -> None:
        """A step changes the workload ``key``; a ``new`` one has missed nothing, whatever had its name before."""
        self._changed.add(key)
        if new:
            self._new.add(key)

    def next_due(self) -> float | None:
        """When an execution is due next, in seconds since the epoch; None if none is."""
        return self._due[0][0] * 60.0 if self._due else None

    def record_due(self, now: float) -> None:
        """Record what is due at ``now``, and an event for the missed times of each. Raises RecordsError."""
        minute, done = int(now // 60), False
        try:
            with self._records.transaction():
                self._record_due(minute, now)
            done = True
            self._changed.clear()
            self._new.clear()
        finally:
            if not done:
                self._known = None  # what is in memory was not written

    def _record_due(self, minute: int, now: float) -> None:
        if self._known is None:
            self._known = self._load()
        if self._minute - minute > AHEAD:
            self._changed |= self._known.keys()  # the clock was set back so far that they begin anew
        self._minute = minute
        if self._changed:
            self._reread(self._known, minute)
        due = dict(self._take_due(self._known, minute))
        if due:
            self._record(self._known, due, now)

    def _load(self) -> dict[Key, _Schedule]:
        """Continue where the records of a former daemon end."""
        self._due.clear()
        positions = self._records.schedules.at_location(self._location) if self._location else {}
        keys = self._records.applied.crons_at(self._location, self._engine) if self._location else []
        self._changed |= {*map(Key.parse, keys), *positions}
        return {key: _Schedule(position, 0) for key, position in positions.items()}

    def _reread(self, schedules: dict[Key, _Schedule], minute: int) -> None:
        many = self._records.applied.get_many(self._changed)
        removed, written = [], []
        for key in sorted(self._changed):
            former = schedules.pop(key, None)
            if key in self._new:
                former = None
            record = next((record for record in many.get(str(key), ()) if self._is_here(record)), None)
            schedule = _read_schedule(record, former, minute) if record is not None else None
            if schedule is None:
                removed.append(key)
                continue
            schedules[key] = schedule
            self._push(key, schedule.position)
            if former is None or former.position != schedule.position:
                written.append((key, schedule.position))
        self._records.schedules.remove_many(self._location, removed)
        self._records.schedules.put_many(self._location, written)

    def _is_here(self, record: Record) -> bool:
        return (record.location, record.engine) == (self._location, self._engine)

    def _push(self, key: Key, position: SchedulePosition) -> None:
        due = next_due(position.schedule, position.checked)
        if due is not None:
            heapq.heappush(self._due, (due, key))

    def _take_due(self, schedules: dict[Key, _Schedule], minute: int) -> Iterator[tuple[Key, DueTimes]]:
        """What is due; a time of a schedule that has changed since is dropped."""
        while self._due and self._due[0][0] <= minute:
            _, key = heapq.heappop(self._due)
            schedule = schedules.get(key)
            times = due_times(*schedule.position, minute) if schedule is not None else None
            if times is not None:
                yield key, times

    def _record(self, schedules: dict[Key, _Schedule], due: dict[Key, DueTimes], now: float) -> None:
        many = self._records.applied.get_many(due, bodies=False)
        positions, events, changed = [], [], dict[str, list[Key]]()
        for key, times in due.items():
            schedule = schedules[key]
            position = SchedulePosition(schedule.position.schedule, times.newest)
            schedules[key] = schedule._replace(position=position)
            self._push(key, position)
            positions.append((key, position))
            here = [*filter(self._is_here, many.get(str(key), ()))]
            new = [
                record
                for record in here
                if self._add_execution(record, times.newest, format_iso_time(now), schedule.limit)
            ]
            for record in new:
                changed.setdefault(record.source, []).append(key)
            if (missed := missed_message(times, "runs")) and len(new) == len(here):
                events.append(NewEvent(key, Reason.EXECUTIONS_MISSED, missed, self._location))
        self._records.schedules.put_many(self._location, positions)
        self._records.events.append_many(events)
        for source, keys in changed.items():
            self._records.status_queue.add_many(source, keys)

    def _add_execution(self, record: Record, minute: int, at: str, limit: int) -> bool:
        """Record the execution of a due minute; False if the clock was ahead then, and it has run already."""
        name, deployment = f"{record.key.name}-{minute}", read_deployment(record.state)
        if deployment is not None:
            if any(job_execution.name == name for job_execution in deployment.status.job_executions):
                return False
            deployment, _ = add_execution(deployment, name, at, limit)
            self._records.applied.update_seen(record.key, record.location, record.health, _encode(deployment))
        return True


def _read_schedule(record: Record, former: _Schedule | None, minute: int) -> _Schedule | None:
    """The schedule of a workload, which begins at ``minute`` unless it is the ``former`` one; None without a job."""
    spec = read_specification(record.body)
    if spec.job is None or spec.type != "cron":
        return None
    suspended = spec.job.suspend or options_at(spec, record.location).suspend
    schedule = "" if suspended else spec.job.schedule
    position = former.position if former is not None else None
    if position is None or begins_anew(schedule, *position, minute):
        position = SchedulePosition(schedule, minute)
    return _Schedule(position, spec.job.history_limit)
