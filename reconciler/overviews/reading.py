"""Reads overviews. Each function imports what it reads with, so that no command loads what others need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reconciler.overviews.overview import SOURCES, Entries, Feed, Measurement, ReadContext

if TYPE_CHECKING:
    from reconciler.engines.usage_history import UsageRow
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.model.key import Key, Kind
    from reconciler.model.target import Target
    from reconciler.notifications.listing import ListedDelivery
    from reconciler.planning.versions import ResourceHistory
    from reconciler.queries.history import RunDetails
    from reconciler.queries.resources import ListedResource, ResourceDetails
    from reconciler.records.tables.events import Event
    from reconciler.records.tables.runs import Run
    from reconciler.status.source_status import SourceDetails, SourceStatus
    from reconciler.status.summary import StatusSummary


def read_status(
    context: ReadContext,
    *,
    kind: Kind | str | None,
    gvc: str | None,
    name: str | None,
    state: str | None,
    text: str | None,
) -> Entries:
    """The recorded resources of ``kind``, in ``gvc``, called ``name`` (None: any), or sources for the kind SOURCES.

    Those in a ``state``, and with ``text`` in their keys, if these are set. Raises NotFoundError and UsageError.
    """
    from reconciler.errors import UsageError
    from reconciler.model.key import Kind
    from reconciler.queries.browsing import ResourceFilter, parse_state, search_resources
    from reconciler.queries.existence import find_source
    from reconciler.queries.resources import find_resources, list_sources

    if gvc is None and name is not None and "/" in name:
        gvc, _, name = name.partition("/")
    if kind is None or isinstance(kind, Kind):
        found = find_resources(context.settings, context.records, kind, gvc, name)
        if not (state or text):
            return Entries(found, context)
        chosen = ResourceFilter(kind, gvc or "", parse_state(state or ""), text or "")
        rows = search_resources(context.settings, context.records, chosen)
        return Entries((row for row in rows if name in (None, row.facts.key.name)), context)
    if gvc:
        raise UsageError("sources are in no GVC; leave --gvc out")
    if state or text:
        raise UsageError("--state and --text choose resources, and `get source` lists sources; leave them out")
    wanted = None if name is None else find_source(context.settings, name).name
    sources = list_sources(context.settings, context.records)
    return Entries([source for source in sources if wanted in (None, source.name)], context, SOURCES)


def read_summary(context: ReadContext, *, target: str) -> StatusSummary:
    """The status of everything, or of a source, resource or commit. Raises NotFoundError and UsageError."""
    from reconciler.queries.summary import list_crashed, summarize_status

    summary = summarize_status(
        context.settings, context.records, target, context.now(), daemon_runs=context.daemon_runs()
    )
    if not context.reads_logs or not (crashed := list_crashed(summary)):
        return summary
    from msgspec.structs import replace

    from reconciler.queries.logs import find_last_line

    lines = {key: find_last_line(context.settings, key) for key in crashed}
    return replace(summary, last_lines={key: line for key, line in lines.items() if line})


def read_details(context: ReadContext, *, key: Target) -> ResourceDetails | SourceDetails:
    """All that is known about a resource, or about the source ``source/NAME``. Raises NotFoundError."""
    from reconciler.queries.existence import source_of
    from reconciler.queries.resources import describe_resource
    from reconciler.queries.sources import describe_source
    from reconciler.queries.summary import has_crashed

    named = context.find_target(key)
    if isinstance(named, str):
        return describe_source(context.settings, context.records, source_of(named), daemon_runs=context.daemon_runs())
    details = describe_resource(context.settings, context.records, named, context.now())
    if not context.reads_logs or not has_crashed(details.facts):
        return details
    from reconciler.queries.logs import find_last_line

    return details._replace(last_line=find_last_line(context.settings, named))


def read_events(context: ReadContext, *, key: Target | None) -> Feed:
    """The events of a resource, of ``source/NAME``, or (None) of all. Raises NotFoundError."""
    from reconciler.queries.history import EventReader

    return EventReader(context.settings, context.records, key and context.find_target(key))


def read_runs(context: ReadContext, *, source: str, last: int, run: int | None = None) -> Entries:
    """The ``last`` listed runs of ``source`` or ("") of all, or one ``run`` with its timeline. Raises NotFoundError."""
    from reconciler.queries.history import describe_run, list_runs

    if run is not None:
        return Entries([describe_run(context.records, run)], context)
    return Entries(list_runs(context.settings, context.records, source, last), context)


def read_versions(context: ReadContext, *, key: Target, commits: int) -> ResourceHistory:
    """The versions of a resource in the last ``commits`` of its source, with the blame of its fields.

    Raises NotFoundError and SourceError.
    """
    from reconciler.queries.versions import read_versions as read_resource_versions

    named = context.find_key(key)
    assert named is not None
    return read_resource_versions(context.settings, context.records, named, commits)


def read_snapshots(context: ReadContext, *, key: Target | None, deleted: bool) -> Entries:
    """The snapshots of ``key`` or of all, or the final ones of ``deleted`` volumes. Raises RefusedError."""
    from reconciler.queries.snapshots import list_final_snapshots, list_snapshots

    named = context.find_key(key)
    snapshots = list_final_snapshots(context.settings, named) if deleted else list_snapshots(context.records, named)
    return Entries(snapshots, context)


def read_replicas(context: ReadContext, *, gvc: str | None) -> Measurement:
    """The replicas of ``gvc``, or (None) of all, with what they use. Raises NotFoundError for an unknown GVC."""
    from reconciler.queries.existence import check_gvc
    from reconciler.queries.top import ReplicaReader

    if gvc is not None and not ReplicaReader(context.settings, gvc).read():
        check_gvc(context.records, gvc)
    return ReplicaReader(context.settings, gvc)


def read_usage(context: ReadContext, *, key: Target) -> Entries:
    """What a workload used in the last day. Raises NotFoundError and UsageError."""
    from reconciler.queries.usage import list_usage

    named = context.find_key(key)
    assert named is not None
    return Entries(list_usage(context.settings, context.records, named), context)


def read_usage_time(_context: ReadContext, row: UsageRow) -> float:
    """The end of the minute."""
    return row.point.at


def read_own_tags(_context: ReadContext, entry: ListedResource | SourceStatus) -> Mapping[str, Any]:
    """The tags of a resource as it was last applied; a source has none."""
    from reconciler.queries.resources import ListedResource, read_tags

    return read_tags(entry.facts.records) if isinstance(entry, ListedResource) else {}


def read_key_tags(context: ReadContext, entry: Any) -> Mapping[str, Any]:
    """The tags of the resource of an event or a replica, as it was last applied; {} for what is not recorded."""
    from reconciler.queries.resources import read_tags

    return read_tags(context.records.applied.get(parsed)) if (parsed := _parse_key(str(entry.key))) else {}


def read_applied_time(_context: ReadContext, entry: ListedResource | SourceStatus) -> float | None:
    """When a resource was last applied, or since when a source is as it is; None where that is not known."""
    from reconciler.queries.resources import ListedResource

    if isinstance(entry, ListedResource):
        return max((record.applied_at for record in entry.facts.records), default=None)
    return max((condition.since for condition in entry.conditions.values()), default=None)


def _parse_key(text: str) -> Key | None:
    from reconciler.model.key import Key

    try:
        return Key.parse(text)
    except ValueError:
        return None


def read_event_time(_context: ReadContext, event: Event) -> float:
    """When an event happened."""
    return event.at


def read_run_time(_context: ReadContext, entry: Run | RunDetails) -> float:
    """When a run began."""
    from reconciler.records.tables.runs import Run

    return entry.started if isinstance(entry, Run) else entry.run.started


def read_notifications(context: ReadContext, *, last: int, id: int | None = None) -> Entries:  # noqa: A002
    """The last messages, or the one with the number ``id``. Raises NotFoundError."""
    from reconciler.queries.notifications import find_notification, list_notifications

    if id is not None:
        return Entries([find_notification(context.records, id)], context)
    return Entries(list_notifications(context.records, last), context)


def read_notification_time(_context: ReadContext, entry: ListedDelivery) -> float:
    """When a message was made."""
    return entry.delivery.created


def read_snapshot_time(_context: ReadContext, snapshot: VolumeSnapshot) -> float | None:
    """When a snapshot was taken; None where that is not known."""
    from reconciler.times import parse_time

    try:
        return parse_time(snapshot.snapshot.created)
    except ValueError:
        return None


def read_snapshot_tags(_context: ReadContext, snapshot: VolumeSnapshot) -> Mapping[str, Any]:
    """The tags of a snapshot."""
    return snapshot.snapshot.tags
