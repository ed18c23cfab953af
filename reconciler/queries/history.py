"""History: runs and events; a reader can wait for new events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reconciler.errors import NotFoundError
from reconciler.model.key import Key
from reconciler.queries.existence import check_target, find_source
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.runs import Phase, Run, Timeline
from reconciler.settings import Settings


def list_runs(settings: Settings, records: Records, source: str, last: int) -> Sequence[Run]:
    """The ``last`` listed runs, newest first, of ``source`` or ("") of all.

    Raises NotFoundError for an unknown source; a source removed from the settings still has its runs.
    """
    runs = records.runs.list(last, source)
    if source and not runs:
        find_source(settings, source)
    return runs


class RunDetails(NamedTuple):
    """A run with its timeline, None if that is not known any more, and its first events."""

    run: Run
    timeline: Timeline | None
    events: Sequence[Event]

    def find_message(self, phase: Phase) -> str:
        """What an event of the run says about a try that failed; "" without one."""
        if phase.result == "ok" or not phase.key:
            return ""
        about = (event for event in self.events if (event.key, event.location) == (phase.key, phase.location))
        return next((event.message for event in about if event.reason == phase.result), "")


def describe_run(records: Records, number: int, most_events: int = 200) -> RunDetails:
    """The run ``number`` with what happened in it. Raises NotFoundError."""
    run = records.runs.find(number)
    if run is None:
        raise NotFoundError(f"there is no run {number}, or not any more; see: reconciler history -o json")
    return RunDetails(run, records.timelines.get(number), records.events.of_run(number, most_events))


class EventReader:
    """Reads the events of ``target`` (a key, ``source/NAME``, None: all), oldest first, after that at ``position``.

    Raises NotFoundError if the target is unknown.
    """

    def __init__(self, settings: Settings, records: Records, target: Key | str | None) -> None:
        if target is not None:
            check_target(settings, records, target)
        self._records = records
        self._target = target
        self._version = -1
        self.position = 0

    def resume(self, position: int) -> None:
        """Continue after the event with the id ``position``, which another reader has read."""
        self.position = position

    def newest(self, last: int) -> Sequence[Event]:
        """The last events, at most ``last``; ``more`` continues after them."""
        events = self._records.events
        self._version = self._records.data_version()
        latest = events.list(limit=1)
        page = events.list(self._target, limit=last)
        self.position = max((event.id for event in (*latest, *page)), default=0)
        return page

    def more(self) -> Sequence[Event]:
        """The next new events; none if nothing was recorded since the last call that returned none."""
        version = self._records.data_version()
        if version == self._version:
            return []
        events = self._records.events.list(self._target, after_id=self.position)
        if events:
            self.position = events[-1].id
        else:
            self._version = version
        return events
