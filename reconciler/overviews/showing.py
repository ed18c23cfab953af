"""Shows overviews as text and as JSON values. Each function imports what it shows with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reconciler.overviews.overview import SOURCES, Entries

if TYPE_CHECKING:
    from reconciler.engines.reading import ReplicaRow
    from reconciler.engines.usage_history import UsageRow
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.notifications.listing import ListedDelivery
    from reconciler.planning.versions import ResourceHistory
    from reconciler.queries.history import RunDetails
    from reconciler.queries.resources import ListedResource, ResourceDetails
    from reconciler.queries.top import ReplicaReader
    from reconciler.records.tables.events import Event
    from reconciler.records.tables.runs import Run
    from reconciler.render.style import TextStyle
    from reconciler.status.source_status import SourceDetails, SourceStatus
    from reconciler.status.summary import StatusSummary


def show_status(entries: Entries, style: TextStyle) -> str:
    """A line for each resource or source."""
    from reconciler.render.resources import resource_table
    from reconciler.render.sources import source_table

    now = entries.context.now()
    if entries.kind == SOURCES:
        return source_table(entries.rows, now, style)
    return resource_table(((row.facts, row.created) for row in entries.rows), now, style)


def make_status_item(entry: ListedResource | SourceStatus) -> dict[str, Any]:
    """A resource or source as JSON values."""
    from reconciler.queries.resources import ListedResource
    from reconciler.render.resources import resource_document
    from reconciler.render.sources import source_document

    if isinstance(entry, ListedResource):
        return resource_document(entry.facts, entry.created)
    return {"kind": SOURCES, **source_document(entry)}


def make_status_extras(entries: Entries) -> dict[str, Any]:
    """All sources, beside resources."""
    from reconciler.queries.resources import list_sources
    from reconciler.render.sources import source_document

    context = entries.context
    sources = [] if entries.kind == SOURCES else list_sources(context.settings, context.records)
    return {} if entries.kind == SOURCES else {"sources": list(map(source_document, sources))}


def list_troubles(entries: Entries) -> Iterator[str]:
    """A line for each source that is not as its newest commit wants; none where sources are listed."""
    from reconciler.queries.resources import list_sources
    from reconciler.render.layout import strip_control
    from reconciler.render.sources import source_lines

    context = entries.context
    for source in () if entries.kind == SOURCES else list_sources(context.settings, context.records):
        yield from map(strip_control, source_lines(source))


def show_summary(summary: StatusSummary, style: TextStyle) -> str:
    """A block for each source, and what is not ready."""
    from reconciler.render.summary import summary_text

    return summary_text(summary, style.colour)


def make_summary_document(summary: StatusSummary) -> dict[str, Any]:
    """The summary as JSON values."""
    from reconciler.render.summary import summary_document

    return summary_document(summary)


def choose_exit_code(summary: StatusSummary) -> int:
    """0 where all is well, 1 where not, 3 where something waits or is in progress."""
    return summary.exit_code


def is_summary_changing(summary: StatusSummary) -> bool:
    """Whether more happens without a person: only a daemon goes on.

    What a suspension or a rollback holds still gets there; what waits for an approval may keep others from it.
    """
    from reconciler.status.summary import Outlook

    outlooks = {resource.outlook for resource in summary.unready}
    waits = summary.outlook is Outlook.WAITING and not any(source.approvals for source in summary.sources)
    is_changing = summary.outlook is Outlook.PROGRESSING or (waits and outlooks == {Outlook.PROGRESSING})
    return summary.daemon_runs and is_changing


def describe_progress(summary: StatusSummary) -> list[str]:
    """What is in progress: a line for all of it, then one for each of the first resources."""
    from reconciler.iteration import MOST_NAMED
    from reconciler.render.layout import strip_control
    from reconciler.status.summary import Outlook

    moving = [resource for resource in summary.unready if resource.outlook is Outlook.PROGRESSING]
    lines = [f"{resource.key}: {strip_control(resource.message)}" for resource in moving[:MOST_NAMED]]
    count = f"waiting: {summary.unready_count} of {summary.total} resources are not ready"
    return [f"{count}; {lines[0]}" if lines else "waiting: the newest commit is not applied yet", *lines[1:]]


def show_details(details: ResourceDetails | SourceDetails, style: TextStyle) -> str:
    """Sections with headings."""
    from reconciler.queries.resources import ResourceDetails
    from reconciler.render.layout import section_text
    from reconciler.render.resources import resource_sections
    from reconciler.render.sources import source_sections

    if isinstance(details, ResourceDetails):
        return section_text(
            resource_sections(*details[:3], style, details[3:5], details.last_line), colour=style.colour
        )
    return section_text(source_sections(details, style.colour), colour=style.colour)


def make_details_document(details: ResourceDetails | SourceDetails) -> dict[str, Any]:
    """A resource with its last commands and events, or a source with its last runs and events, as JSON values."""
    from reconciler.queries.resources import ResourceDetails
    from reconciler.render.resources import details_document
    from reconciler.render.sources import source_details_document

    if isinstance(details, ResourceDetails):
        return details_document(*details[:5])
    return {"kind": SOURCES, **source_details_document(details)}


def show_events(entries: Entries, style: TextStyle) -> str:
    """A line for each event."""
    from reconciler.render.history import event_line

    return "\n".join(event_line(event, style.colour) for event in entries.rows)


def make_event_item(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    from reconciler.render.history import event_document

    return event_document(event)


def show_runs(entries: Entries, style: TextStyle) -> str:
    """A line for each run; below one that was asked for, a line for each phase of it."""
    from reconciler.records.tables.runs import Run
    from reconciler.render.history import run_line, timeline_table

    return "\n".join(
        run_line(row, style.colour)
        if isinstance(row, Run)
        else f"{run_line(row.run, style.colour)}\n\n{timeline_table(row.timeline, row.find_message, style)}"
        for row in entries.rows
    )


def make_run_item(entry: Run | RunDetails) -> dict[str, Any]:
    """A run as JSON values, with its phases if it was asked for."""
    from reconciler.records.tables.runs import Run
    from reconciler.render.history import run_document, timeline_document

    if isinstance(entry, Run):
        return run_document(entry)
    return run_document(entry.run) | timeline_document(entry.timeline, entry.find_message)


def show_notifications(entries: Entries, style: TextStyle) -> str:
    """A line for each message; below one that was asked for, its text."""
    from reconciler.notifications.listing import format_delivery

    return "\n".join(format_delivery(row, style) for row in entries.rows)


def make_notification_item(entry: ListedDelivery) -> dict[str, Any]:
    """A message as JSON values, with its text if it was asked for."""
    from reconciler.notifications.listing import describe_delivery

    return describe_delivery(entry)


def show_versions(history: ResourceHistory, style: TextStyle) -> str:
    """A line for each version."""
    from reconciler.render.versions import version_table

    return version_table(history.versions, style)


def make_versions_document(history: ResourceHistory) -> dict[str, Any]:
    """The versions as JSON values."""
    from reconciler.render.versions import versions_document

    return versions_document(history)


def show_blame(history: ResourceHistory, style: TextStyle) -> str:
    """A line for each field."""
    from reconciler.render.versions import blame_table

    return blame_table(history.fields, style)


def make_blame_document(history: ResourceHistory) -> dict[str, Any]:
    """The fields as JSON values."""
    from reconciler.render.versions import blame_document

    return blame_document(history)


def note_search(history: ResourceHistory) -> Iterator[str]:
    """A line where older commits were not searched."""
    from reconciler.render.versions import describe_search

    yield from filter(None, (describe_search(history),))


def show_snapshots(entries: Entries, style: TextStyle) -> str:
    """A line for each snapshot."""
    from reconciler.render.snapshots import snapshot_table

    return snapshot_table(entries.rows, entries.context.now(), style)


def make_snapshot_item(snapshot: VolumeSnapshot) -> dict[str, Any]:
    """A snapshot as JSON values."""
    from reconciler.render.snapshots import snapshot_document

    return snapshot_document(snapshot)


def show_replicas(entries: Entries, style: TextStyle) -> str:
    """A line for each replica."""
    from reconciler.render.replicas import replica_table

    return replica_table(entries.rows, style)


def make_replica_item(row: ReplicaRow) -> dict[str, Any]:
    """A replica as JSON values."""
    from reconciler.render.replicas import replica_document

    return replica_document(row)


def show_usage(entries: Entries, style: TextStyle) -> str:
    """A line for each minute."""
    from reconciler.render.usage import usage_table

    return usage_table(entries.rows, style)


def make_usage_item(row: UsageRow) -> dict[str, Any]:
    """A minute as JSON values."""
    from reconciler.render.usage import usage_document

    return usage_document(row)


def note_locations(reader: ReplicaReader) -> Iterator[str]:
    """A line if no replica can run here, and one for each location that did not answer."""
    from reconciler.engines.plugin import name_engines

    if not reader.has_locations:
        yield f"the settings bind no location to the engine {name_engines()}"
    for location, fault in sorted(reader.faults.items()):
        yield f"the replicas at {location} are missing: {fault}"
