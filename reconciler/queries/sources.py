"""One source: what is recorded about it, and its newest commit."""

from __future__ import annotations

from reconciler.errors import SourceError
from reconciler.queries.existence import find_source
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.source.source import open_source
from reconciler.status.source_status import SourceDetails, read_source_status

_RUNS, _EVENTS = 5, 10
"""The most runs and events of a description."""


def describe_source(settings: Settings, records: Records, name: str, *, daemon_runs: bool) -> SourceDetails:
    """All that is known about the source ``name``; reads its repository. Raises NotFoundError."""
    source = find_source(settings, name)
    counts: dict[str, int] = {}
    for (_, health), count in records.applied.counts(name).items():
        counts[str(health)] = counts.get(str(health), 0) + count
    try:
        newest, unreadable = open_source(source, settings.state).revision(""), ""
    except SourceError as error:
        newest, unreadable = None, str(error)
    return SourceDetails(
        status=read_source_status(records, name),
        url=source.url,
        newest=newest,
        unreadable=unreadable,
        health_counts=counts,
        runs=records.runs.list(_RUNS, name),
        events=records.events.list(source_target(name), limit=_EVENTS),
        daemon_runs=daemon_runs,
    )
