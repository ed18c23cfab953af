"""Reads overviews. Each function imports what it reads with, so that no command loads what others need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reconciler.overviews.overview import Feed, Measurement, ReadContext

if TYPE_CHECKING:
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.model.key import Kind
    from reconciler.model.target import Target
    from reconciler.queries.resources import ResourceDetails
    from reconciler.records.tables.runs import Run
    from reconciler.status.conditions import ResourceFacts
    from reconciler.status.source_status import SourceDetails, SourceStatus
    from reconciler.status.summary import StatusSummary


class StatusOverview(NamedTuple):
    """The facts on resources, read as they are shown; the sources are read where they are shown."""

    resources: Iterator[ResourceFacts]
    context: ReadContext

    def sources(self) -> list[SourceStatus]:
        """The status of each source in the settings."""
        from reconciler.queries.resources import list_sources

        return list_sources(self.context.settings, self.context.records)


class SnapshotOverview(NamedTuple):
    """Snapshots of volumes, read at the time ``now``."""

    snapshots: Sequence[VolumeSnapshot]
    now: float


def read_status(context: ReadContext, *, kind: Kind | None, gvc: str | None, name: str | None) -> StatusOverview:
    """The recorded resources of ``kind``, in ``gvc``, called ``name`` (None: any). Raises NotFoundError."""
    from reconciler.queries.resources import find_resources

    return StatusOverview(find_resources(context.settings, context.records, kind, gvc, name), context)


def read_summary(context: ReadContext, *, target: str) -> StatusSummary:
    """The status of everything, or of a source, resource or commit. Raises NotFoundError and UsageError."""
    from reconciler.queries.summary import summarize_status

    return summarize_status(context.settings, context.records, target, context.now(), daemon_runs=context.daemon_runs())


def read_details(context: ReadContext, *, key: Target) -> ResourceDetails | SourceDetails:
    """All that is known about a resource, or about the source ``source/NAME``. Raises NotFoundError."""
    from reconciler.queries.existence import source_of
    from reconciler.queries.resources import describe_resource
    from reconciler.queries.sources import describe_source

    named = context.find_target(key)
    if isinstance(named, str):
        return describe_source(context.settings, context.records, source_of(named), daemon_runs=context.daemon_runs())
    return describe_resource(context.settings, context.records, named)


def read_events(context: ReadContext, *, key: Target | None) -> Feed:
    """The events of a resource, of ``source/NAME``, or (None) of all. Raises NotFoundError."""
    from reconciler.queries.history import EventReader

    return EventReader(context.settings, context.records, key and context.find_target(key))


def read_runs(context: ReadContext, *, source: str, last: int) -> Sequence[Run]:
    """The last runs that changed something or failed, of ``source`` or ("") of all. Raises NotFoundError."""
    from reconciler.queries.history import list_runs

    return list_runs(context.settings, context.records, source, last)


def read_snapshots(context: ReadContext, *, key: Target | None, deleted: bool) -> SnapshotOverview:
    """The snapshots of ``key`` or of all, or the final ones of ``deleted`` volumes. Raises RefusedError."""
    from reconciler.queries.snapshots import list_final_snapshots, list_snapshots

    named = context.find_key(key)
    snapshots = list_final_snapshots(context.settings, named) if deleted else list_snapshots(context.records, named)
    return SnapshotOverview(snapshots, context.now())


def read_replicas(context: ReadContext, *, gvc: str | None) -> Measurement:
    """The replicas of ``gvc``, or (None) of all, with what they use. Raises NotFoundError for an unknown GVC."""
    from reconciler.queries.existence import check_gvc
    from reconciler.queries.top import ReplicaReader

    if gvc is not None and not ReplicaReader(context.settings, gvc).read():
        check_gvc(context.records, gvc)
    return ReplicaReader(context.settings, gvc)
