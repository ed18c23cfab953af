"""The status of a source: its applied revision, whether that is the newest, and if not, why and since when."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconciler.model.revision import Revision
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.conditions import ScopeCondition
from reconciler.records.tables.events import Event
from reconciler.records.tables.pins import Pin
from reconciler.records.tables.runs import REFUSED, Run
from reconciler.records.tables.sources import SourceRow
from reconciler.records.tables.suspensions import Suspension, source_target


class SourceStatus(msgspec.Struct, frozen=True):
    """What is recorded about a source; ``refused`` is the run that refused its newest revision."""

    name: str
    applied: SourceRow | None
    conditions: dict[str, ScopeCondition]
    refused: Run | None = None
    pin: Pin | None = None
    suspension: Suspension | None = None

    @property
    def ready(self) -> bool:
        """Whether the newest revision that was read is fully applied."""
        condition = self.conditions.get(ConditionType.READY)
        return condition is not None and condition.status and self.trouble is None

    @property
    def trouble(self) -> ScopeCondition | None:
        """Why its newest revision is not fully applied; None if it is, or if a run is in progress."""
        reach, condition = self.conditions.get(ConditionType.SOURCE_REACHABLE), self.conditions.get(ConditionType.READY)
        if reach is not None and not reach.status:
            return reach
        bad = (Reason.INVALID_REVISION, Reason.INVALID_FILES, Reason.INTERNAL_ERROR)
        return condition if condition is not None and not condition.status and condition.reason in bad else None


class SourceDetails(msgspec.Struct, frozen=True):
    """A source for people: its status, its newest commit, its resources by health, its last runs and events.

    ``newest`` is None if the repository cannot be read; ``unreadable`` has the reason. ``daemon_runs``: a daemon polls
    it.
    """

    status: SourceStatus
    url: str
    newest: Revision | None
    unreadable: str
    health_counts: dict[str, int]
    runs: Sequence[Run]
    events: Sequence[Event]
    daemon_runs: bool

    @property
    def is_current(self) -> bool:
        """Whether the newest commit is the one last applied."""
        applied = self.status.applied
        return applied is not None and self.newest is not None and applied.commit == self.newest.commit


def read_source_status(records: Records, name: str) -> SourceStatus:
    """Return the status of the source ``name``; an unknown source has no conditions."""
    conditions = {condition.type: condition for condition in records.conditions.get(name)}
    ready = conditions.get(ConditionType.READY)
    last = records.runs.last_read(name) if ready is not None and ready.reason == Reason.INVALID_REVISION else None
    return SourceStatus(
        name,
        records.sources.get(name),
        conditions,
        last if last is not None and last.outcome == REFUSED else None,
        records.pins.get(name),
        records.suspensions.get(source_target(name)),
    )
